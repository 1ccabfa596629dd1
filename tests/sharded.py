"""FSDP2 without an accelerator: accelerate offers it to several GPUs only, and torch also does it on CPUs."""

from __future__ import annotations

from typing import Any

from accelerate.state import PartialState
from accelerate.utils import DistributedType

SHARDED: dict[str, Any] = {
    "fsdp": True,
    "fsdp_config": {"version": 2, "reshard_after_forward": True, "transformer_layer_cls_to_wrap": ["BertLayer"]},
}


def allow_fsdp_on_cpu() -> None:
    """Let accelerate take the CPUs of this process, which must be a child, for GPUs."""
    ordinary = PartialState.__init__

    def init(self: PartialState, *args: Any, **kwargs: Any) -> None:
        ordinary(self, *args, **kwargs)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    PartialState.__init__ = init
