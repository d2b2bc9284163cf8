"""The pip extras, for the message that is shown when a package is missing."""

TRAIN = (
    "imageio_ffmpeg", "jinja2", "markupsafe", "matplotlib", "mujoco", "mujoco_playground", "optax", "rich", "scipy",
    "tensorboardX",
)  # fmt: skip
EXTRAS = {
    **dict.fromkeys(TRAIN, "train"),
    **dict.fromkeys(("pandas", "pyarrow"), "studies"),
    **dict.fromkeys(("gymnasium", "imageio", "pygame"), "gymnasium"),
    **dict.fromkeys(("onnx", "onnxruntime"), "onnx"),
    "ray": "ray",
}


def missing(error: ModuleNotFoundError) -> str | None:
    """Returns a sentence that names the extra to install, or None if no extra has the module."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return f"{package} is not installed; install it with: pip install 'moca-rl[{EXTRAS[package]}]'"
