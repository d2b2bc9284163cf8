"""The closed forms: one function per expectation or covariance of a compatible family."""
