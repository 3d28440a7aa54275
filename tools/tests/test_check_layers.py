"""What tools/check_layers.py calls a fault, and that the project has none."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools import check_layers  # noqa: E402

PICTURE = """# Map

```
$ not the picture
```

```
 floor 3   top/            uses all
 floor 2   left/           one
                           of two
           left/inner/     the same floor
           right/          the other
           pair/one/       two of one folder
           pair/two/
 floor 1   base/           what all use
           pair/           what both use
```

Inside of one:

```
 floor 2.2 right/upper/
 floor 2.1 right/
 floor 2.2 pair/two/upper/
 floor 2.1 pair/two/
```
"""


class CheckLayersTest(unittest.TestCase):

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        self.write("docs/architecture.md", PICTURE)
        for room in ("top", "left/inner", "right/upper", "right", "base",
                     "pair", "pair/one", "pair/two", "pair/two/upper"):
            self.write(f"{room}/a.h", "")

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def faults(self):
        return check_layers.find_faults(self.root)

    def test_includes_that_point_down_or_stay_are_right(self):
        self.write("top/b.cc", '#include "left/inner/a.h"\n#include "top/a.h"\n')
        self.write("left/b.h", '#include <left>\n#include "base/a.h"\n')
        self.write("tests/b.cc", '#include "top/a.h"\n')
        self.assertEqual(self.faults(), [])

    def test_an_include_that_points_up_is_named(self):
        self.write("base/b.cc", '#include "base/a.h"\n#include "top/a.h"\n')
        self.assertEqual(self.faults(),
                         ["base/b.cc: includes top/a.h; top/ is above it"])

    def test_rooms_of_a_floor_do_not_know_each_other(self):
        self.write("right/b.cu", '#include "left/inner/a.h"\n')
        self.write("left/b.h", '#include "left/inner/a.h"\n')
        self.assertEqual(
            self.faults(),
            ["left/b.h: includes left/inner/a.h; left/inner/ is beside it",
             "right/b.cu: includes left/inner/a.h; left/inner/ is beside it"])

    def test_floors_inside_a_room_are_beside_its_neighbours(self):
        self.write("right/upper/b.h", '#include "right/a.h"\n')
        self.write("right/b.h", '#include "right/upper/a.h"\n')
        self.write("right/upper/c.h", '#include "left/a.h"\n')
        self.write("left/b.h", '#include "right/upper/a.h"\n')
        self.write("top/b.h", '#include "right/upper/a.h"\n')
        self.assertEqual(
            self.faults(),
            ["left/b.h: includes right/upper/a.h; right/upper/ is beside it",
             "right/b.h: includes right/upper/a.h; right/upper/ is above it",
             "right/upper/c.h: includes left/a.h; left/ is beside it"])

    def test_floors_inside_two_rooms_of_a_floor_are_beside_each_other(self):
        self.write("pair/two/upper/b.h", '#include "pair/two/a.h"\n')
        self.write("pair/two/b.h", '#include "pair/one/a.h"\n')
        self.write("pair/two/upper/c.h",
                   '#include "pair/a.h"\n#include "pair/one/a.h"\n')
        self.assertEqual(
            self.faults(),
            ["pair/two/b.h: includes pair/one/a.h; pair/one/ is beside it",
             "pair/two/upper/c.h: includes pair/one/a.h; "
             "pair/one/ is beside it"])

    def test_picture_and_folders_agree(self):
        self.write("attic/a.h", "")
        (self.root / "left/inner/a.h").unlink()
        (self.root / "left/inner").rmdir()
        self.assertEqual(self.faults(),
                         ["docs/architecture.md: there is no left/inner/",
                          "attic/a.h: in no room of docs/architecture.md"])

    def test_what_a_room_never_includes_is_named(self):
        self.write("docs/architecture.md", PICTURE + """
```
 never top/    includes base/ left/inner/
 never right/  includes base/
```
""")
        self.write("top/b.cc", '#include "left/inner/a.h"\n#include "left/b.h"\n')
        self.write("left/b.h", '#include "base/a.h"\n')
        fault = ("top/b.cc: includes left/inner/a.h; "
                 "top/ never includes left/inner/")
        self.assertEqual(self.faults(), [fault])
        known = [("top/b.cc", "left/inner/a.h")]
        self.assertEqual(check_layers.find_faults(self.root, known), [])
        known.append(("top/c.cc", "base/a.h"))
        self.assertEqual(
            check_layers.find_faults(self.root, known),
            ["tools/check_layers.py: top/c.cc no longer includes base/a.h"])

    def test_the_project_has_no_fault(self):
        self.assertEqual(
            check_layers.find_faults(ROOT, check_layers.KNOWN), [])


if __name__ == "__main__":
    unittest.main()
