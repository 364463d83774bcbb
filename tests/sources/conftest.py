"""The synthetic download and record of the tests of dataset folders, here too."""

from tests.dataset.conftest import benchmark, copy, download, record  # noqa: F401  (fixtures)
