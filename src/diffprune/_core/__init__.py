"""What every other part of the library stands on: types, files, clocks."""
