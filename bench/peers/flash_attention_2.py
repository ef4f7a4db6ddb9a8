"""Generation 2, write_kv and merge beside PyTorch's FlashAttention 2 and copy_, on one GPU.

    python3 bench/peers/flash_attention_2.py --library build/release/lib/librapt.so.0

Attention: 16,384 query tokens in all, as requests of 512 to 16,384, 32/8 heads, bf16, causal and
full, keys without a cache and, with --pages and causal, in shuffled pages of 16. Each contestant's
turn takes --ms; rounds in turn, as many of warm-up as of measurement. Printed are the median of the
rounds' ratios, theirs / ours in time, so that above 1 Rapt is faster, and the median rates.
Outputs are poisoned first and compared once. Several --library: builds beside each other.
"""

import argparse
import json
import statistics

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from rapt_c import Rapt

TOKENS, QUERY_HEADS, KV_HEADS = 16384, 32, 8
NO = 2  # rapt_choice


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def poisoned(like):
    return torch.full_like(like, float("nan"))


def turn(launch, ms):
    """Milliseconds of one launch, of about `ms` of them without a pause."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    launch()
    end.record()
    end.synchronize()
    count = max(1, min(2000, int(ms / max(begin.elapsed_time(end), 1e-3))))
    begin.record()
    for _ in range(count):
        launch()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count


def race(contestants, ms, rounds):
    """name -> milliseconds of each measured round, in turn."""
    times = {name: [] for name in contestants}
    for i in range(2 * rounds):
        for name, launch in contestants.items():
            taken = turn(launch, ms)
            if i >= rounds:
                times[name].append(taken)
    return times


def attention(rapts, head_dim, length, causal, options):
    requests = TOKENS // length
    q = normal(TOKENS, QUERY_HEADS, head_dim)
    k, v = normal(TOKENS, KV_HEADS, head_dim), normal(TOKENS, KV_HEADS, head_dim)
    shape = [(requests, length, t.shape[1], head_dim) for t in (q, k, v)]
    theirs = [t.view(s).transpose(1, 2) for t, s in zip((q, k, v), shape)]

    def peer():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(
                *theirs, is_causal=causal, enable_gqa=True
            )

    contestants = {"peer": peer}
    expected = peer().transpose(1, 2).reshape(q.shape).float()
    for name, rapt in rapts.items():
        for page in [0, 16] if options.pages and causal else [0]:
            spec = rapt.attention(
                QUERY_HEADS, KV_HEADS, head_dim, q.dtype, page_size=page, causal=0 if causal else NO
            )
            out, kv = poisoned(q), (k, v)
            if page:
                table = torch.randperm(TOKENS // page, dtype=torch.int32).view(requests, -1)
                there = table.flatten().long().cuda()
                kv = []
                for t in (k, v):
                    pool = torch.empty(TOKENS // page, page, KV_HEADS, head_dim).to(t).cuda()
                    pool[there] = t.view(-1, page, KV_HEADS, head_dim)
                    kv.append(pool)
                batch, plan = rapt.paged_plan(spec, length, length, table, TOKENS // page)
            else:
                batch, plan = rapt.ragged_plan(spec, length, length, requests)
            launch = rapt.run(plan, q, *kv, out)
            launch()
            error = (out.float() - expected).norm() / expected.norm()
            assert error < 5e-3, f"{name}, page {page}: {error}"
            contestants[name + (f" page {page}" if page else "")] = launch
    flops = 4 * TOKENS * length * QUERY_HEADS * head_dim / (2 if causal else 1)
    return contestants, flops / 1e9, "TFLOP/s"


def write_kv(rapts, tokens, page):
    k, v = normal(tokens, KV_HEADS, 128), normal(tokens, KV_HEADS, 128)
    slots = torch.randperm(tokens, device="cuda")
    source = torch.cat([k, v])
    target = poisoned(source)
    contestants = {"peer": lambda: target.copy_(source)}
    for name, rapt in rapts.items():
        spec = rapt.attention(QUERY_HEADS, KV_HEADS, 128, k.dtype, page_size=page)
        cache = [poisoned(t).view(-1, page, KV_HEADS, 128) for t in (k, v)]
        launch = rapt.write_kv(spec, k, v, slots, *cache)
        launch()
        for t, pool in zip((k, v), cache):
            assert torch.equal(pool.view(tokens, KV_HEADS, 128)[slots], t), name
        contestants[name] = launch
    return contestants, 2 * source.nbytes / 1e9, "TB/s"


def merge(rapts, tokens, states, dtype):
    outs = [normal(tokens, QUERY_HEADS, 128, dtype=dtype) for _ in range(states)]
    lses = [normal(QUERY_HEADS, tokens, dtype=torch.float32) for _ in range(states)]
    weights = torch.stack(lses).softmax(0).transpose(1, 2).unsqueeze(-1)
    expected = sum(w * o.float() for w, o in zip(weights, outs))
    source = torch.cat(outs + [outs[0]])[: (states + 1) * tokens // 2]
    target = poisoned(source)
    contestants = {"peer": lambda: target.copy_(source)}
    for name, rapt in rapts.items():
        out, lse = poisoned(outs[0]), poisoned(lses[0])
        launch = rapt.merge(outs, lses, out, lse)
        launch()
        assert (out.float() - expected).abs().max() < 2e-2, name
        assert (lse - torch.stack(lses).logsumexp(0)).abs().max() < 1e-5, name
        contestants[name] = launch
    return contestants, 2 * source.nbytes / 1e9, "TB/s"


def cells(options):
    rapts = {f"rapt{i or ''}": Rapt(library) for i, library in enumerate(options.library)}
    for head_dim in options.head_dims:
        for causal in (True, False):
            for length in options.lengths:
                name = f"D {head_dim} {'causal' if causal else 'full'} {length}"
                yield name, lambda: attention(rapts, head_dim, length, causal, options)
    if options.memory:
        for tokens, page in [(4096, 16), (16384, 16), (131072, 16), (131072, 1)]:
            yield f"write_kv {tokens} page {page}", lambda: write_kv(rapts, tokens, page)
        for dtype in (torch.bfloat16, torch.float32):
            for tokens in (4096, 16384):
                for states in (2, 3, 8):
                    name = f"merge {states} states of {tokens} {str(dtype)[6:]}"
                    yield name, lambda: merge(rapts, tokens, states, dtype)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", action="append", required=True)
    parser.add_argument("--head-dims", type=int, nargs="*", default=[64, 128, 256])
    parser.add_argument(
        "--lengths", type=int, nargs="*", default=[512, 1024, 2048, 4096, 8192, 16384]
    )
    parser.add_argument("--pages", action="store_true", help="pages of 16 too")
    parser.add_argument("--memory", action="store_true", help="write_kv and merge too")
    parser.add_argument("--ms", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=6, help="measured, after as many of warm-up")
    parser.add_argument("--out")
    options = parser.parse_args()
    torch.manual_seed(1)
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cells": {}}
    for name, make in cells(options):
        contestants, amount, unit = make()
        times = race(contestants, options.ms, options.rounds)
        rates = {n: amount / statistics.median(t) for n, t in times.items()}
        ratios = {
            n: statistics.median(p / o for p, o in zip(times["peer"], t))
            for n, t in times.items()
            if n != "peer"
        }
        report["cells"][name] = {"unit": unit, "rates": rates, "ratios": ratios, "ms": times}
        print(
            f"{name:34} peer {rates['peer']:7.4g} {unit}; "
            + "; ".join(f"{n} {rates[n]:7.4g} = {r:.3f}" for n, r in ratios.items()),
            flush=True,
        )
    if options.out:
        with open(options.out, "w") as file:
            json.dump(report, file, indent=1)


main()
