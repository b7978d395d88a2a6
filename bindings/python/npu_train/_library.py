"""The shared library: where it is, its functions, and how tensors and functions pass between it and Python."""
import ctypes
import functools
import importlib.util
import json
import mmap
import os
import pathlib
import re
import sys
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p

ABI = 1
NAME = f'libnpu_train_c.so.{ABI}'
GET = ctypes.CFUNCTYPE(c_int, c_void_p, c_int64, POINTER(c_void_p), POINTER(c_void_p))
EVENT = ctypes.CFUNCTYPE(c_int, c_char_p, c_void_p)


class Error(RuntimeError):
    """An error of the library; `code` is the exit code that train_app would have."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code

    def __reduce__(self): return Error, (str(self), self.code)


class Dataset(ctypes.Structure):
    _fields_ = [('size', c_int64), ('num_classes', c_int64), ('get', GET), ('user', c_void_p)]


# Argument types of the functions that return an error.
FUNCTIONS = {
    'trainer_new': (c_char_p, POINTER(c_char_p), c_size_t, POINTER(c_void_p)),
    'trainer_set_tensors': (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
    'trainer_set_data': (c_void_p, POINTER(Dataset), POINTER(Dataset)),
    'trainer_on_event': (c_void_p, EVENT, c_void_p),
    'trainer_fit': (c_void_p, POINTER(c_void_p)),
    'trainer_resume': (c_void_p, c_char_p, POINTER(c_void_p)),
    'trainer_save': (c_void_p, POINTER(c_void_p)),
    'trainer_validate': (c_void_p, POINTER(c_void_p)),
    'trainer_predict': (c_void_p, c_void_p, POINTER(c_void_p)),
    'trainer_log': (c_void_p, c_char_p, c_double, c_int64),
    'trainer_config': (c_void_p, POINTER(c_void_p)),
    'predictor_new': (c_char_p, c_char_p, POINTER(c_void_p)),
    'predictor_predict': (c_void_p, c_void_p, POINTER(c_void_p)),
    'predictor_classify': (c_void_p, c_char_p, c_int64, POINTER(c_void_p)),
}


def _path():
    given = os.environ.get('NPU_TRAIN_C_LIBRARY')
    here = pathlib.Path(__file__).resolve().parent
    places = [pathlib.Path(given)] if given else [here / 'lib' / NAME, here.parents[2] / 'build/lib' / NAME, here.parents[2] / 'build' / NAME]
    for place in places:
        if place.is_file(): return place
    raise ImportError(f'npu_train: there is no {NAME} (searched: {", ".join(map(str, places))}); build it with scripts/setup, or set NPU_TRAIN_C_LIBRARY')


def _check_torch(path):
    """The process can have one libtorch: that of the torch module here, if there is one, which must be of the version of the build."""
    with open(path, 'rb') as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        built_with = re.search(rb'npu_train built with libtorch ([0-9.]+)', content)
        built_with = built_with.group(1).decode() if built_with else 'unknown'
    if 'torch' not in sys.modules and importlib.util.find_spec('torch') is None: return
    import torch
    if torch.__version__.split('+')[0] != built_with:
        raise ImportError(f'npu_train: {path} was built with libtorch {built_with}, and this Python has torch {torch.__version__} '
                          f'({torch.__file__}); install torch=={built_with}, or build npu_train with this torch')


class _Library:
    def __init__(self):
        path = _path()
        _check_torch(path)
        self.call = ctypes.CDLL(str(path))
        if (abi := self.call.npu_train_abi()) != ABI: raise ImportError(f'npu_train: {path} has ABI {abi}, and this package needs {ABI}')
        for name, arguments in FUNCTIONS.items():
            function = getattr(self.call, 'npu_train_' + name)
            function.argtypes, function.restype = arguments, c_void_p
        for name, arguments, result in (('version', (), c_char_p), ('torch_version', (), c_char_p), ('error_code', (c_void_p, ), c_int),
                                        ('error_message', (c_void_p, ), c_char_p), ('error_free', (c_void_p, ), None),
                                        ('text_free', (c_void_p, ), None), ('trainer_free', (c_void_p, ), None),
                                        ('trainer_request_stop', (c_void_p, ), None), ('predictor_free', (c_void_p, ), None)):
            function = getattr(self.call, 'npu_train_' + name)
            function.argtypes, function.restype = arguments, result

    def new_trainer(self, config, overrides):
        texts = (c_char_p * max(len(overrides), 1))(*(o.encode() for o in overrides))
        trainer = c_void_p()
        raise_error(self.call.npu_train_trainer_new(config.encode(), texts, len(overrides), ctypes.byref(trainer)))
        return trainer

    def new_predictor(self, checkpoint, device):
        predictor = c_void_p()
        raise_error(self.call.npu_train_predictor_new(checkpoint, device, ctypes.byref(predictor)))
        return predictor


@functools.cache
def library(): return _Library()


def version():
    """The versions of the library and of the libtorch that it was built with."""
    call = library().call
    return call.npu_train_version().decode(), call.npu_train_torch_version().decode()


def raise_error(error):
    if not error: return
    call = library().call
    message, code = call.npu_train_error_message(error).decode(errors='replace'), call.npu_train_error_code(error)
    call.npu_train_error_free(error)
    raise Error(message, code)


def taken_text(call):
    """The text that `call` puts into a place."""
    place = c_void_p()
    call(ctypes.byref(place))
    text = ctypes.string_at(place.value).decode()
    library().call.npu_train_text_free(place)
    return text


def numbers(text):
    """JSON in which numbers that are not finite are the texts nan, inf and -inf."""
    return json.loads(text, object_hook=lambda o: {k: float(v) if v in ('nan', 'inf', '-inf') else v for k, v in o.items()})


# Capsules of DLPack. A capsule is renamed when another owner takes its tensor.
_python = ctypes.pythonapi
_python.PyCapsule_GetPointer.argtypes, _python.PyCapsule_GetPointer.restype = (ctypes.py_object, c_char_p), c_void_p
_python.PyCapsule_SetName.argtypes, _python.PyCapsule_SetName.restype = (ctypes.py_object, c_char_p), c_int
_python.PyCapsule_New.argtypes, _python.PyCapsule_New.restype = (c_void_p, c_char_p, c_void_p), ctypes.py_object
_python.PyCapsule_IsValid.argtypes, _python.PyCapsule_IsValid.restype = (c_void_p, c_char_p), c_int
# PyCapsule_GetPointer for a capsule without references, which must not become a Python object again.
_address_in = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(('PyCapsule_GetPointer', ctypes.pythonapi))
_FREE, _USED = b'dltensor', b'used_dltensor'
_DELETER = ctypes.CFUNCTYPE(None, c_void_p)


def given_tensor(value):
    """The address of a DLManagedTensor that the library will own: of an object with __dlpack__, or of what numpy makes of a list."""
    if not hasattr(value, '__dlpack__'):
        import numpy
        value = numpy.asarray(value)
        if value.dtype == numpy.float64: value = value.astype(numpy.float32)  # numpy's dtype for Python's numbers
    if any(stride < 0 for stride in getattr(value, 'strides', None) or ()):  # a flipped array of numpy: DLPack allows it, libtorch does not
        import numpy
        value = numpy.ascontiguousarray(value)
    try:
        capsule = value.__dlpack__()
    except BufferError:  # for numpy's read-only memory
        import numpy
        capsule = numpy.array(value).__dlpack__()
    address = _python.PyCapsule_GetPointer(capsule, _FREE)
    _python.PyCapsule_SetName(capsule, _USED)
    return address


class _Managed(ctypes.Structure):
    """DLManagedTensor of https://dmlc.github.io/dlpack."""
    _fields_ = [('data', c_void_p), ('device_type', c_int), ('device_id', c_int), ('ndim', c_int), ('code', ctypes.c_uint8),
                ('bits', ctypes.c_uint8), ('lanes', ctypes.c_uint16), ('shape', POINTER(c_int64)), ('strides', POINTER(c_int64)),
                ('byte_offset', ctypes.c_uint64), ('context', c_void_p), ('deleter', c_void_p)]


@ctypes.PYFUNCTYPE(None, c_void_p)
def _free_capsule(capsule):
    """The destructor of a capsule: releases a tensor that found no owner."""
    if not _python.PyCapsule_IsValid(capsule, _FREE): return
    address = _address_in(capsule, _FREE)
    if deleter := _Managed.from_address(address).deleter: _DELETER(deleter)(address)


class Tensor:
    """A tensor of the library, for numpy.from_dlpack() or torch.from_dlpack(), once: the memory is not copied and has one owner."""

    def __init__(self, address): self._address = address

    @classmethod
    def result(cls, call):
        place = c_void_p()
        call(ctypes.byref(place))
        return cls(place.value)

    def _managed(self):
        if self._address is None: raise BufferError('npu_train: the tensor has another owner already')
        return _Managed.from_address(self._address)

    @property
    def shape(self):
        managed = self._managed()
        return tuple(managed.shape[i] for i in range(managed.ndim))

    def __dlpack_device__(self):
        managed = self._managed()
        return managed.device_type, managed.device_id

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self._managed()
        address, self._address = self._address, None
        return _python.PyCapsule_New(address, _FREE, ctypes.cast(_free_capsule, c_void_p))

    def numpy(self):
        """A copy that may be changed; numpy.from_dlpack() gives one that may not, without a copy."""
        import numpy
        return numpy.array(numpy.from_dlpack(self))

    def __del__(self):
        if self._address is not None and (deleter := _Managed.from_address(self._address).deleter): _DELETER(deleter)(self._address)


def dataset(data, note):
    """npu_train_dataset for an object with len() and [i]. `note` receives an exception of the object."""
    def get(_, index, input_place, target_place):
        try:
            value, target = data[index]
            input_place[0] = given_tensor(value)
            target_place[0] = given_tensor(target)
            return 0
        except BaseException as exception:
            note(exception)
            return 1
    return Dataset(len(data), getattr(data, 'num_classes', 0) or 0, GET(get), None)


def event_function(function, note):
    def receive(event, _):
        try:
            return 1 if function(numbers(event)) else 0
        except BaseException as exception:
            note(exception)
            return 1
    return EVENT(receive)
