"""A process that has imported most of what a run's processes import; they are forked from it.

Ray, and vLLM after it, start one process after the other, and each would import the same for ten
seconds or more. `start` begins such a process beside the command's own imports; Ray and vLLM are
given `client` in the place of their interpreter, which asks it to become what they wanted to run.
"""
