"""Rapt through its C ABI (include/rapt/rapt.h), for torch tensors on one GPU."""

import ctypes
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_float,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint64,
    c_void_p,
)

import torch

KDL_CUDA = 2
DTYPES = {  # code and bits of a DLDataType
    torch.bfloat16: (4, 16),
    torch.float16: (2, 16),
    torch.float32: (2, 32),
    torch.int32: (0, 32),
    torch.int64: (0, 64),
    torch.uint8: (1, 8),
}


def struct(name, **fields):
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


DLDevice = struct("DLDevice", device_type=c_int32, device_id=c_int32)
DLDataType = struct("DLDataType", code=c_uint8, bits=c_uint8, lanes=c_uint16)
DLTensor = struct(
    "DLTensor",
    data=c_void_p,
    device=DLDevice,
    ndim=c_int32,
    dtype=DLDataType,
    shape=POINTER(c_int64),
    strides=POINTER(c_int64),
    byte_offset=c_uint64,
)
TensorPointer = POINTER(DLTensor)


def abi_struct(name, **fields):
    """A struct of the ABI, which begins with its size; fields that are not named are zero."""
    return struct(name, struct_size=c_size_t, **fields)


ContextOptions = abi_struct(
    "rapt_context_options",
    num_threads=c_int32,
    check_device_indices=c_int32,
    parallel_for=c_void_p,
    parallel_for_user=c_void_p,
    log=c_void_p,
    log_user=c_void_p,
    isa=c_char_p,
    device=c_char_p,
    packs=c_void_p,
    num_packs=c_size_t,
    cache_folder=c_char_p,
)
AttentionSpec = abi_struct(
    "rapt_attention_spec",
    num_query_heads=c_int32,
    num_kv_heads=c_int32,
    head_dim_qk=c_int32,
    head_dim_vo=c_int32,
    dtype=DLDataType,
    kv_format=c_int32,
    page_size=c_int32,
    kind=c_int32,
    causal=c_int32,
    has_window=c_int32,
    window_left=c_int64,
    window_right=c_int64,
    scale=c_float,
    softcap=c_float,
    alibi=c_int32,
    sinks=c_int32,
    custom_mask=c_int32,
    kv_scales=c_int32,
    needs_lse=c_int32,
    batch_invariant=c_int32,
)
Batch = abi_struct(
    "rapt_batch",
    num_requests=c_int64,
    query_start=POINTER(c_int32),
    kv_len=POINTER(c_int32),
    page_table=TensorPointer,
    num_pages=c_int64,
    kv_start=POINTER(c_int32),
)
RunArgs = abi_struct(
    "rapt_run_args",
    **{
        name: TensorPointer
        for name in "q k v out lse alibi_slopes sinks custom_mask k_scale v_scale".split()
    },
    workspace=c_void_p,
    workspace_bytes=c_size_t,
    stream=c_void_p,
)
WriteKvArgs = abi_struct(
    "rapt_write_kv_args",
    **{name: TensorPointer for name in "k v slot_mapping cache_k cache_v k_scale v_scale".split()},
    stream=c_void_p,
    rope=c_void_p,
)
MergeArgs = abi_struct(
    "rapt_merge_args",
    num_states=c_size_t,
    outs=POINTER(TensorPointer),
    lses=POINTER(TensorPointer),
    out=TensorPointer,
    lse=TensorPointer,
    stream=c_void_p,
)


def filled(kind, **values):
    return kind(struct_size=ctypes.sizeof(kind), **values)


def int32s(values):
    return (c_int32 * len(values))(*values)


def stream():
    return torch.cuda.current_stream().cuda_stream


class Tensor:
    """A DLTensor of a torch tensor, which it keeps alive."""

    def __init__(self, tensor):
        ndim = tensor.dim()
        self.tensor = tensor
        self.shape, self.strides = (c_int64 * ndim)(*tensor.shape), (c_int64 * ndim)(
            *tensor.stride()
        )
        device = DLDevice(KDL_CUDA if tensor.is_cuda else 1, tensor.device.index or 0)
        dtype = DLDataType(*DTYPES[tensor.dtype], 1)
        self.dl = DLTensor(tensor.data_ptr(), device, ndim, dtype, self.shape, self.strides, 0)
        self.pointer = ctypes.pointer(self.dl)


class Rapt:
    """The library and a context on the GPU."""

    def __init__(self, library):
        self.lib = ctypes.CDLL(str(library))
        self.lib.rapt_last_error_message.restype = c_char_p
        self.context = self.made(
            "rapt_context_create", byref(filled(ContextOptions, device=b"cuda"))
        )

    def call(self, name, *arguments):
        if getattr(self.lib, name)(*arguments) != 0:
            raise RuntimeError(f"{name}: {self.lib.rapt_last_error_message().decode()}")

    def made(self, name, *arguments):
        handle = c_void_p()
        self.call(name, *arguments, byref(handle))
        return handle

    def attention(self, query_heads, kv_heads, head_dim, dtype, **options):
        spec = filled(
            AttentionSpec,
            num_query_heads=query_heads,
            num_kv_heads=kv_heads,
            head_dim_qk=head_dim,
            dtype=DLDataType(*DTYPES[dtype], 1),
            **options,
        )
        return self.made("rapt_attention_create", self.context, byref(spec), None)

    def ragged_plan(self, attention, query_len, kv_len, requests):
        """The batch, of requests of the same lengths one after another, and its plan."""
        starts = int32s([query_len * i for i in range(requests + 1)])
        kv_starts = int32s([kv_len * i for i in range(requests + 1)])
        batch = filled(
            Batch,
            num_requests=requests,
            query_start=starts,
            kv_len=int32s([kv_len] * requests),
            kv_start=kv_starts,
        )
        return batch, self.made("rapt_plan_create", attention, byref(batch))

    def paged_plan(self, attention, query_len, kv_len, table, num_pages):
        """The same over pages: `table`, int32 [requests, pages] on the host."""
        requests = table.shape[0]
        batch = filled(
            Batch,
            num_requests=requests,
            query_start=int32s([query_len * i for i in range(requests + 1)]),
            kv_len=int32s([kv_len] * requests),
            page_table=Tensor(table).pointer,
            num_pages=num_pages,
        )
        return batch, self.made("rapt_plan_create", attention, byref(batch))

    def run(self, plan, q, k, v, out):
        """A function that launches the plan on the current stream."""
        size = c_size_t()
        self.call("rapt_plan_workspace_bytes", plan, byref(size))
        workspace = torch.empty(max(size.value, 1), dtype=torch.uint8, device="cuda")
        tensors = {name: Tensor(t) for name, t in {"q": q, "k": k, "v": v, "out": out}.items()}
        arguments = filled(
            RunArgs,
            workspace=workspace.data_ptr(),
            workspace_bytes=size.value,
            **{name: t.pointer for name, t in tensors.items()},
        )

        def launch(kept=(workspace, tensors)):
            arguments.stream = stream()
            self.call("rapt_run", plan, byref(arguments))

        return launch

    def write_kv(self, attention, k, v, slots, cache_k, cache_v):
        named = dict(k=k, v=v, slot_mapping=slots, cache_k=cache_k, cache_v=cache_v)
        tensors = {name: Tensor(t) for name, t in named.items()}
        arguments = filled(WriteKvArgs, **{name: t.pointer for name, t in tensors.items()})

        def launch(kept=tensors):
            arguments.stream = stream()
            self.call("rapt_write_kv", attention, byref(arguments))

        return launch

    def merge(self, outs, lses, out, lse):
        tensors = [[Tensor(t) for t in ts] for ts in (outs, lses, [out, lse])]
        pointers = [(TensorPointer * len(ts))(*[t.pointer for t in ts]) for ts in tensors]
        arguments = filled(
            MergeArgs,
            num_states=len(outs),
            outs=pointers[0],
            lses=pointers[1],
            out=tensors[2][0].pointer,
            lse=tensors[2][1].pointer,
        )

        def launch(kept=(tensors, pointers)):
            arguments.stream = stream()
            self.call("rapt_merge", self.context, byref(arguments))

        return launch
