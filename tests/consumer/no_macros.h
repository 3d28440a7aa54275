// Included last by each source of this project: what the installed headers may
// not leave behind, because a program has macros of its own of these names.
#pragma once

#if defined(RETURN_IF_ERROR) || defined(ASSIGN_OR_RETURN) ||                \
    defined(RETURN_IF_CUDA_ERROR) || defined(CHECK) || defined(CHECK_EQ) || \
    defined(CHECK_LT) || defined(DCHECK)
#error "a macro without a prefix comes with <espalier/*.h>"
#endif
