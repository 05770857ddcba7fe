"""Flower's arrays with fewer copies on their way. Without torch: a call's own process imports this."""

import pickle
import sys
import threading
from typing import Any, SupportsIndex

import numpy as np
from flwr.app import Array as FlowerArray


class Array(FlowerArray):
    """An array that Ray copies once, into memory that its processes share, in place of three times on each way.

    It has the name of Flower's, which goes with the bytes over a network: there it comes back as Flower's.
    """

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """With pickle's protocol 5 the bytes may travel beside the pickle."""
        if protocol.__index__() < 5:
            return super().__reduce_ex__(protocol)
        return _unpickled, (self.dtype, self.shape, self.stype, pickle.PickleBuffer(self.data))


def _unpickled(dtype: str, shape: tuple[int, ...], stype: str, data: Any) -> Array:
    array = Array.__new__(Array)  # the constructor wants bytes, and from Ray this is a view of its shared memory
    array.dtype, array.shape, array.stype, array.data = dtype, shape, stype, data
    return array


class Common(Array):
    """An array that all clients of a round are sent: Ray stores it once, and fetches it once for a machine."""

    _stored: Any = None  # Ray's reference to its bytes

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """In the process that Ray's driver is, a reference goes with the pickle, in place of the bytes."""
        ray = sys.modules.get("ray")
        if protocol.__index__() < 5 or ray is None or not ray.is_initialized():
            return super().__reduce_ex__(protocol)
        with _STORING:
            if self._stored is None:
                self._stored = ray.put(np.frombuffer(self.data, np.uint8))
        return _fetched, (self.dtype, self.shape, self.stype, self._stored)


_STORING = threading.Lock()  # Flower pickles messages in several threads


def _fetched(dtype: str, shape: tuple[int, ...], stype: str, stored: Any) -> Array:
    import ray

    return _unpickled(dtype, shape, stype, memoryview(ray.get(stored)))
