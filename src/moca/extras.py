"""The extra that brings a package, for the sentence that is shown when one is missing."""

EXTRAS = {
    **dict.fromkeys(
        ("imageio_ffmpeg", "matplotlib", "mujoco", "mujoco_playground", "optax", "rich", "scipy", "tensorboardX"),
        "train",
    ),
    **dict.fromkeys(("jinja2", "markupsafe", "pandas", "pyarrow"), "studies"),
    **dict.fromkeys(("gymnasium", "imageio", "pygame"), "gymnasium"),
    **dict.fromkeys(("onnx", "onnxruntime"), "onnx"),
    "ray": "ray",
}


def missing(error: ModuleNotFoundError) -> str | None:
    """A sentence that names the extra to install, or None where the missing module is not of an extra."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return f"{package} is not installed: pip install 'moca-rl[{EXTRAS[package]}]' brings it"
