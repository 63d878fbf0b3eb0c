"""What the user sees when a distribution cannot be turned into machine code."""


class LoweringError(ValueError):
    """A distribution of the model cannot be lowered to a nopython function.

    Parameters
    ----------
    subject : str
        The distribution, and the name of the variable where it has one.
    what : str
        Which function was asked for: the log density, its gradient or a draw.
    why : str
        What stands in the way.
    remedy : str
        What the user can do about it.

    Examples
    --------
    >>> raise LoweringError("Flat 'x'", "draws", "it is improper", "give it a proper prior")
    Traceback (most recent call last):
        ...
    pymc_dp.lowering.errors.LoweringError: Cannot compile draws of Flat 'x': it is improper. To ...
    """

    def __init__(self, subject: str, what: str, why: str, remedy: str):
        self.subject, self.what, self.why, self.remedy = subject, what, why, remedy
        super().__init__(
            f"Cannot compile {what} of {subject}: {why.rstrip('.')}. To go on: {remedy.rstrip('.')}."
        )

    def __reduce__(self) -> tuple[type, tuple[str, str, str, str]]:
        # the default would call the class with the message alone, and fail in a worker process
        return type(self), (self.subject, self.what, self.why, self.remedy)
