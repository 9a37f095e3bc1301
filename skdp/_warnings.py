"""The warning category of privacy statements that hold less than they seem to."""


class PrivacyWarning(UserWarning):
    """A privacy statement is conditional, or void; the message says on what."""
