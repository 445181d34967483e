"""What the tests of every package share."""

from hypothesis import settings

# The same examples on every machine and in every run, with no time limit on one example: a slow
# machine is not a bug. `--hypothesis-profile=default` searches at random instead.
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=50, print_blob=True)
settings.load_profile("ci")
