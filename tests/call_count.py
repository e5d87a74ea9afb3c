"""Count the function calls of a piece of code, which is a measure of its cost on any machine."""

import gc
import sys


class CallCount:
    """Counts calls in this thread; of Python functions only, unless `builtins`.

    Without garbage collection, whose callbacks (Hypothesis has one) would count too.
    """

    def __init__(self, *, builtins=False):
        self.count = 0
        self._events = {"call", "c_call"} if builtins else {"call"}

    def __enter__(self):
        self._collects = gc.isenabled()
        gc.disable()
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        if self._collects:
            gc.enable()

    def _note(self, _frame, event, _argument):
        self.count += event in self._events
