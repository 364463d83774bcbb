"""A dataset folder, from records to the Hub: build, validate, describe, compare, attach pictures, publish."""
