// Included last by each source of this project: fails if an installed header
// leaves a macro defined that a program may use itself.
#pragma once

#if defined(RETURN_IF_ERROR) || defined(ASSIGN_OR_RETURN) ||                \
    defined(RETURN_IF_CUDA_ERROR) || defined(CHECK) || defined(CHECK_EQ) || \
    defined(CHECK_LT) || defined(DCHECK)
#error "a macro without a prefix comes with <espalier/*.h>"
#endif
