"""Names of MuJoCo Playground's environments, so that a typo is found before anything is imported.

Gymnasium's names are not listed: any name registered there is allowed, after a prefix. The same
holds for environments that only their user has.
"""

import re

GYMNASIUM = "gymnasium:"
OWN = "own:"  # followed by the name of the class
MJX, MUJOCO = "mjx", "mujoco"  # what can simulate Playground's environments


def is_name(text: str) -> bool:
    """Returns True if `text` is a valid environment name, such as `module:namespace/Task-v1`."""
    parts = re.split(r"[/:]", text)
    return bool(re.fullmatch(r"[\w.:/-]+", text)) and len(text.encode()) <= 150 and not {"", ".", ".."} & set(parts)


def displayed(name: str) -> str:
    """Returns the name of an environment as it is displayed: without the prefix."""
    return name.removeprefix(OWN).removeprefix(GYMNASIUM)


def folder_name(name: str) -> str:
    """Returns the name of an environment as it appears in directory names."""
    return re.sub(r"[^\w.-]", "-", name)


SUITE = (  # the DeepMind control suite
    "AcrobotSwingup", "AcrobotSwingupSparse", "BallInCup", "CartpoleBalance", "CartpoleBalanceSparse",
    "CartpoleSwingup", "CartpoleSwingupSparse", "CheetahRun", "FingerSpin", "FingerTurnEasy", "FingerTurnHard",
    "FishSwim", "HopperHop", "HopperStand", "HumanoidStand", "HumanoidWalk", "HumanoidRun", "PendulumSwingup",
    "PointMass", "ReacherEasy", "ReacherHard", "SwimmerSwimmer6", "WalkerRun", "WalkerStand", "WalkerWalk",
)  # fmt: skip
PLAYGROUND = (
    *SUITE,
    "ApolloJoystickFlatTerrain", "BarkourJoystick", "BerkeleyHumanoidJoystickFlatTerrain",
    "BerkeleyHumanoidJoystickRoughTerrain", "G1JoystickFlatTerrain", "G1JoystickRoughTerrain", "Go1JoystickFlatTerrain",
    "Go1JoystickRoughTerrain", "Go1Getup", "Go1Handstand", "Go1Footstand", "H1InplaceGaitTracking",
    "H1JoystickGaitTracking", "Op3Joystick", "SpotFlatTerrainJoystick", "SpotGetup", "SpotJoystickGaitTracking",
    "T1JoystickFlatTerrain", "T1JoystickRoughTerrain", "AlohaHandOver", "AlohaSinglePegInsertion", "PandaPickCube",
    "PandaPickCubeOrientation", "PandaPickCubeCartesian", "PandaOpenCabinet", "PandaRobotiqPushCube",
    "LeapCubeReorient", "LeapCubeRotateZAxis", "AeroCubeRotateZAxis",
)  # fmt: skip
