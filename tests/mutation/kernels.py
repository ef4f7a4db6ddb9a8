#!/usr/bin/env python3
"""Changes device text in ways that must not pass, one at a time, and fails if a test program
does not notice.

usage: kernels.py BUILD PROGRAM KERNEL_FOLDER OBJECT... [-- NAME...]

BUILD is a configured and built Ninja tree; PROGRAM a test in it that links OBJECTs, whose sources
include the device text. Each mutant is a copy of KERNEL_FOLDER with one edit of MUTANTS. One OBJECT
after the other that includes the edited file is compiled against the copy and linked in place of
what it was, until the program fails; if it does with none, all of them are at once. First it is run
with all OBJECTs of a copy that is not edited, and must pass.
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

UNCHANGED = "unchanged"
PASSES, KILLED = "passes every test", "killed"

# By test program; name: (file, text that occurs once, what takes its place).
MUTANTS = {
    "attention_kernel_test": {
        "block_not_waited_for": (
            "prefill/attention_sm80.cuh",
            "copy_async_wait<0>();\n        sync_block();  // the block is there",
            "copy_async_wait<1>();\n        sync_block();  // the block is there",
        ),
        "block_without_barrier": (
            "prefill/attention_sm80.cuh",
            "sync_block();  // the block is there",
            "// the block is there",
        ),
        "rows_without_barrier": (
            "prefill/attention_sm80.cuh",
            "keep(next_page, key + kKeys, first ^ 1);\n      sync_block();",
            "keep(next_page, key + kKeys, first ^ 1);",
        ),
        "work_without_barrier": (
            "prefill/attention_sm80.cuh",
            "    }\n    sync_block();\n    q_ =",
            "    }\n    q_ =",
        ),
        "next_keys_over_these": (
            "prefill/attention_sm80.cuh",
            "if (kTwo && !last) copy_keys(stage ^ 1);",
            "if (kTwo && !last) copy_keys(stage);",
        ),
        "next_values_over_these": (
            "prefill/attention_sm80.cuh",
            "copy_values(kTwo ? stage ^ 1 : stage);",
            "copy_values(stage);",
        ),
        "values_not_waited_for": (
            "prefill/attention_sm80.cuh",
            "copy_async_wait<0>();\n      sync_block();",
            "sync_block();",
        ),
        "next_keys_before_all_have_read_these": (
            "prefill/attention_sm80.cuh",
            "sync_block();  // the values are there",
            "// the values are there",
        ),
        "rows_of_the_wrong_block": (
            "prefill/attention_sm80.cuh",
            "keep(page, key + 2 * kKeys, stage);",
            "keep(page, key + 2 * kKeys, stage ^ 1);",
        ),
        "rows_one_block_late": (
            "prefill/attention_sm80.cuh",
            "page = find_page(key + 2 * kKeys)",
            "page = find_page(key + kKeys)",
        ),
        "mask_only_at_the_end": ("prefill/attention_sm80.cuh", "key < by_all.begin || ", ""),
        "mask_not_at_the_end": (
            "prefill/attention_sm80.cuh",
            " || key + 8 * kTiles > by_all.end",
            "",
        ),
        "mask_shifted_by_one": ("prefill/attention_sm80.cuh", "at < seen.end;", "at <= seen.end;"),
        "first_key_masked": ("prefill/attention_sm80.cuh", "at >= seen.begin", "at > seen.begin"),
        "queries_of_the_first_tokens": (
            "prefill/attention_sm80.cuh",
            " + further / kGroup * q_token_stride",
            "",
        ),
        "keys_behind_half_a_block_dropped": (
            "prefill/attention_sm80.cuh",
            "key + kKeys / 2 >= seen().end",
            "key + kKeys / 2 + 1 >= seen().end",
        ),
        "page_tails_read": (
            "prefill/attention_sm80.cuh",
            "key < keys.begin || key >= keys.end)",
            "key < keys.begin)",
        ),
        "keys_hidden_from_all_read": (
            "prefill/attention_sm80.cuh",
            "if (kVariant.custom_mask && !seen_by_some(key)) return -1;",
            "",
        ),
        "keys_of_the_last_query_hidden": (
            "prefill/attention_sm80.cuh",
            "token <= (work_.row_end - 1) / kGroup;",
            "token < (work_.row_end - 1) / kGroup;",
        ),
        "page_of_the_key_before": (
            "prefill/attention_sm80.cuh",
            "request_.first_page + key / kVariant.page_size",
            "request_.first_page + (key > 0 ? key - 1 : 0) / kVariant.page_size",
        ),
        "rows_behind_the_work_written": (
            "prefill/attention_sm80.cuh",
            "return {row < work_.row_end,",
            "return {row <= work_.row_end,",
        ),
        "outputs_left_with_other_lanes": (
            "prefill/attention_sm80.cuh",
            "low = set ? got : low, high = set ? high : got;",
            "",
        ),
        "sink_in_every_part": (
            "prefill/attention_sm80.cuh",
            "kVariant.sinks && takes_sink &&",
            "kVariant.sinks &&",
        ),
        "output_not_rescaled": (
            "prefill/attention_sm80.cuh",
            "out_[m][n][i] *= decay[i / 2];",
            ";",
        ),
        "rescaled_by_the_other_row": (
            "prefill/attention_sm80.cuh",
            "out_[m][n][i] *= decay[i / 2];",
            "out_[m][n][i] *= decay[1 - i / 2];",
        ),
        "sum_not_rescaled": (
            "softmax/online.cuh",
            "sum = fmaf(sum, decay, total);",
            "sum += total;",
        ),
        "maximum_of_two_lanes": (
            "softmax/online.cuh",
            "lanes_max<kRowLanes>(top)",
            "lanes_max<kRowLanes / 2>(top)",
        ),
        "swizzle_of_loads_alone": (
            "copy/tile.cuh",
            "tile + T::offset(static_cast<int>(first_row), static_cast<int>(first_chunk))",
            "tile + T::kRowBytes * first_row + 16 * first_chunk",
        ),
        "columns_behind_the_head_not_cleared": (
            "copy/tile.cuh",
            "kUsedChunks = round_up(kChunks, 2)",
            "kUsedChunks = kChunks",
        ),
        "right_operand_not_transposed": (
            "mma/tile_products.cuh",
            "load_matrices_transposed(r, T::further(lane, 16 * step, first + n));",
            "load_matrices(r, T::further(lane, 16 * step, first + n));",
        ),
        "window_one_key_short": (
            "variant/visible.cuh",
            "position - params.window_left)",
            "position - params.window_left + 1)",
        ),
        "small_scores_cancelled_by_the_softcap": (
            "variant/visible.cuh",
            "y < 0.1f ? series : ",
            "",
        ),
        "top_left_alignment": (
            "variant/visible.cuh",
            " + request.kv_len - request.query_len;",
            ";",
        ),
    },
    "cache_kernels_test": {
        "parts_without_keys_weighed": ("merge/merge.cuh", "if (its == 0) continue;", ""),
        "infinite_part_weighed": (
            "merge/merge.cuh",
            "lse == infinity() ? -infinity() : lse * kLog2E",
            "lse * kLog2E",
        ),
        "sink_not_in_the_sum": ("merge/merge.cuh", " : exp2_fast(sink - reference))", " : 0)"),
        "sink_not_in_the_maximum": ("merge/merge.cuh", "top = fmaxf(top, sink);", ""),
        "parts_of_the_next_row": (
            "merge/merge.cuh",
            "part_stride = work.part_rows * heads;",
            "part_stride = 1;",
        ),
        "rows_from_the_requests_first": (
            "merge/merge.cuh",
            "row = work.row_begin + index / heads;",
            "row = index / heads;",
        ),
        "first_query_head_of_the_group": (
            "merge/merge.cuh",
            "query_head = index % heads * group + row % group;",
            "query_head = index % heads * group;",
        ),
        "later_parts_not_read": (
            "merge/merge.cuh",
            "if (first_d > 0 || part > 0) load_parts(part, d);",
            "if (first_d > 0) load_parts(part, d);",
        ),
        "lse_in_log2": (
            "softmax/sink.cuh",
            "(top + log_sum) * kLn2",
            "(top + log_sum)",
        ),
        "rows_behind_the_last_merged": (
            "merge/merge.cuh",
            "if (index >= (work.row_end - work.row_begin) * heads) return;",
            "",
        ),
        "negative_slots_written": ("cache/write_kv.cuh", "if (slot < 0) return;", ""),
        "offset_of_the_next_slot": (
            "cache/write_kv.cuh",
            "slot - page * params.page_size;",
            "(slot + 1) % params.page_size;",
        ),
        "last_chunk_not_written": (
            "cache/write_kv.cuh",
            "num_heads * chunks};",
            "num_heads * chunks - 1};",
        ),
        "page_ids_past_the_length_looked_at": (
            "cache/check_indices.cuh",
            "position < end ? value_of(position) : least",
            "value_of(position)",
        ),
        "page_of_a_tail_not_checked": (
            "cache/check_indices.cuh",
            "(request.kv_len + params.page_size - 1) / params.page_size",
            "request.kv_len / params.page_size",
        ),
        "page_past_the_pool_passed": (
            "cache/check_indices.cuh",
            "params.num_pages - 1",
            "params.num_pages",
        ),
        "bad_index_of_any_lane": (
            "cache/check_indices.cuh",
            "if (lane == lowest) *found",
            "if (bad) *found",
        ),
        "slots_of_the_first_share_alone": (
            "cache/check_indices.cuh",
            "const i64 begin = index * kCheckedSlots;",
            "const i64 begin = 0;",
        ),
        "negative_slots_refused": (
            "cache/check_indices.cuh",
            "kLeast = -0x7fffffffffffffff - 1",
            "kLeast = 0",
        ),
        "positions_of_unwritten_tokens_checked": (
            "cache/check_indices.cuh",
            "params.slots && params.slots[at] < 0",
            "params.slots && params.slots[at] > 0",
        ),
        "keys_rotated_backwards": (
            "cache/rope_write_kv.cuh",
            "Element::pack(x * cos - y * sin, y * cos + x * sin);\n  store_global_2(to + a",
            "Element::pack(x * cos + y * sin, y * cos - x * sin);\n  store_global_2(to + a",
        ),
        "sines_that_are_cosines": (
            "cache/rope_write_kv.cuh",
            "load_floats(sin, cos_sin + num_pairs + pair);",
            "load_floats(sin, cos_sin + pair);",
        ),
        "pairs_of_the_other_style": (
            "cache/rope_write_kv.cuh",
            "b = a + (kInterleaved ? 16 : 2 * num_pairs);",
            "b = a + 16;",
        ),
        "neighbours_take_one_angle": (
            "cache/rope_write_kv.cuh",
            "c[] = {cos[2 * i], cos[2 * i + 1]}",
            "c[] = {cos[2 * i], cos[2 * i]}",
        ),
        "elements_behind_the_rotated_forgotten": (
            "cache/rope_write_kv.cuh",
            "if (item >= runs) {",
            "if (item > runs) {",
        ),
        "queries_of_unwritten_tokens_forgotten": (
            "cache/rope_write_kv.cuh",
            "if (slot < 0 && !params.q) return;",
            "if (slot < 0) return;",
        ),
        "second_half_stored_first": (
            "cache/rope_write_kv.cuh",
            "store_global_2(to + a, static_cast<u16>(rotated));",
            "store_global_2(to + a, static_cast<u16>(rotated >> 16));",
        ),
        "state_without_keys_weighed": (
            "merge/merge_states.cuh",
            "if (its != 0) out[e] =",
            "out[e] =",
        ),
        "states_behind_the_last_read": (
            "merge/merge_states.cuh",
            "s + j < params.num_states && d",
            "d",
        ),
        "infinite_state_weighed": (
            "merge/merge_states.cuh",
            "if (lse == infinity()) lse = -infinity();",
            "",
        ),
        "states_before_forgotten": (
            "merge/merge_states.cuh",
            "s == 0 ? 0 : bits_float(shuffle(float_bits(weight_before), row))",
            "0",
        ),
        "states_before_weighed_as_they_were": (
            "merge/merge_states.cuh",
            "merged.sum * exp2_fast((merged.top - top) * kLog2E)",
            "merged.sum",
        ),
        "states_before_of_the_first_row": (
            "merge/merge_states.cuh",
            "float_bits(weight_before), row)",
            "float_bits(weight_before), 0)",
        ),
        "first_states_again": (
            "merge/merge_states.cuh",
            "state = params.states[s + j];",
            "state = params.states[j];",
        ),
        "lse_of_the_first_states_again": (
            "merge/merge_states.cuh",
            "state = params.states[s + part.weighed_state];",
            "state = params.states[part.weighed_state];",
        ),
        "zeros_lose_their_sign": (
            "merge/merge_states.cuh",
            "float_bits(sum == 0 ? 0 : -0.0f)",
            "float_bits(0.0f)",
        ),
        "no_key_is_minus_zero": (
            "merge/merge_states.cuh",
            "float_bits(sum == 0 ? 0 : -0.0f)",
            "float_bits(-0.0f)",
        ),
        "lse_of_the_result_in_log2": (
            "merge/merge_states.cuh",
            "log2_fast(sum) * kLn2",
            "log2_fast(sum)",
        ),
        "lse_of_half_the_states": (
            "merge/merge_states.cuh",
            "j *= 2) sum +=",
            "j *= 4) sum +=",
        ),
        "lse_written_before_the_last_elements": (
            "merge/merge_states.cuh",
            " && is_last && first + (kElems << params.tiles.lanes_log2) >= params.head_dim",
            " && is_last",
        ),
        "rows_behind_the_last_read": (
            "merge/merge_states.cuh",
            "r * part.groups + part.group < part.num_rows",
            "r * part.groups + part.group <= part.num_rows",
        ),
        "rows_behind_the_last_written": (
            "merge/merge_states.cuh",
            "d < params.head_dim && row < part.num_rows",
            "d < params.head_dim && row <= part.num_rows",
        ),
        "lse_behind_the_last_read": (
            "merge/merge_states.cuh",
            "part.weighed_row < part.num_rows;",
            "part.weighed_row <= part.num_rows;",
        ),
        "elements_behind_the_row_read": (
            "merge/merge_states.cuh",
            "d < params.head_dim &&\n          r *",
            "r *",
        ),
        "first_elements_again": (
            "merge/merge_states.cuh",
            "d = first + kElems * part.lane;",
            "d = kElems * part.lane;",
        ),
        "weights_of_the_other_row": (
            "merge/merge_states.cuh",
            "row + j * part.tile_tokens",
            "j * part.tile_tokens",
        ),
        "row_of_the_group_before": (
            "merge/merge_states.cuh",
            "row += part.groups * state.out_token_stride;",
            "row += state.out_token_stride;",
        ),
        "second_elements_of_pairs_forgotten": (
            "merge/merge_states.cuh",
            "return i % 2 ? Element::high(pairs[i / 2]) : Element::low(pairs[i / 2]);",
            "return Element::low(pairs[i / 2]);",
        ),
        "first_pair_stored_twice": (
            "merge/merge_states.cuh",
            "Element::pack(x[0], x[1]), Element::pack(x[2], x[3]));\n  else",
            "Element::pack(x[0], x[1]), Element::pack(x[0], x[1]));\n  else",
        ),
        "first_element_of_a_pair_stored_twice": (
            "merge/merge_states.cuh",
            "store_global_4(row + 2 * d, Element::pack(x[0], x[1]));",
            "store_global_4(row + 2 * d, Element::pack(x[0], x[0]));",
        ),
        "small_chunks_take_the_first_byte_alone": (
            "cache/write_kv.cuh",
            "write_token<2>(params);",
            "write_token<16>(params);",
        ),
        "heads_where_the_source_has_them": (
            "cache/write_kv.cuh",
            "to + i / row_chunks * cache_head_stride",
            "to + i / row_chunks * head_stride",
        ),
    },
}


def compile_commands(build):
    """By object."""
    entries = json.loads((build / "compile_commands.json").read_text())

    def made(entry):
        words = shlex.split(entry["command"])
        return pathlib.Path(entry["directory"], words[words.index("-o") + 1]).resolve()

    return {made(entry): entry for entry in entries}


def listed(build, *tool):
    command = ["ninja", "-t", *tool]
    return subprocess.run(
        command, cwd=build, capture_output=True, text=True, check=True
    ).stdout.splitlines()


class Object:
    """One that includes device text: how it is compiled, and which files it includes."""

    def __init__(self, build, path, commands, kernels):
        self.path = str(path.relative_to(build))
        self.command, self.directory = commands[path]["command"], commands[path]["directory"]
        included = [line.strip() for line in listed(build, "deps", self.path)[1:]]
        self.kernels = kernels
        self.files = {pathlib.Path(self.directory, file).resolve() for file in included}

    def includes(self, file):
        return self.kernels / file in self.files

    def compile(self, kernels, made):
        command = self.command.replace(f"-I{self.kernels}", f"-I{kernels}")
        command = command.replace(f"-o {self.path}", f"-o {made}") + " -w"
        environment = {**os.environ, "CCACHE_DISABLE": "1"}  # no folder of a mutant's comes back
        done = subprocess.run(
            command, shell=True, cwd=self.directory, env=environment, capture_output=True
        )
        return done.returncode == 0


class Mutation:
    def __init__(self, build, program, kernels, objects):
        self.program, self.kernels, self.build = program, kernels, build
        commands = compile_commands(build)
        self.objects = [Object(build, path, commands, kernels) for path in objects]
        self.link = next(
            line
            for line in reversed(listed(build, "commands", program))
            if f"-o bin/{program}" in line
        )

    # What becomes of a mutant, or of the text as it is if name is UNCHANGED.
    def judge(self, name, folder):
        kernels = folder / "kernels"
        shutil.copytree(self.kernels, kernels)
        if name == UNCHANGED:
            return self.outcome(folder, self.objects)
        file, before, after = MUTANTS[self.program][name]
        text = (self.kernels / file).read_text()
        if text.count(before) != 1:
            return f"{file} has its text {text.count(before)} times, not once"
        (kernels / file).write_text(text.replace(before, after))
        including = [o for o in self.objects if o.includes(file)]
        trials = [[o] for o in including] + ([including] if len(including) != 1 else [])
        for objects in trials:
            outcome = self.outcome(folder, objects)
            if outcome != PASSES:
                break
        return outcome

    # With these objects made anew.
    def outcome(self, folder, objects):
        program, link = folder / self.program, self.link
        link = link.replace(f"-o bin/{self.program}", f"-o {program}")
        for i, part in enumerate(objects):
            made = folder / f"{i}.o"
            if not part.compile(folder / "kernels", made):
                return "does not compile"
            link = link.replace(part.path, str(made))
        subprocess.run(link, shell=True, cwd=self.build, capture_output=True, check=True)
        try:
            run = subprocess.run(
                [program, "--gtest_brief=1", "--gtest_fail_fast"], capture_output=True, timeout=120
            )
        except subprocess.TimeoutExpired:
            return "runs for more than two minutes"
        return PASSES if run.returncode == 0 else KILLED


def main():
    arguments = sys.argv[1:] + ["--"]
    names = [name for name in arguments[arguments.index("--") + 1 :] if name != "--"]
    build, program, kernels, *objects = arguments[: arguments.index("--")]
    build, kernels, *objects = (pathlib.Path(p).resolve() for p in (build, kernels, *objects))
    mutation = Mutation(build, program, kernels, objects)
    names = [UNCHANGED] + (names or list(MUTANTS[program]))

    def judge(name):
        with tempfile.TemporaryDirectory() as folder:
            return name, mutation.judge(name, pathlib.Path(folder))

    bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, outcome in pool.map(judge, names):
            print(f"{name}: {outcome}", flush=True)
            bad += outcome != (PASSES if name == UNCHANGED else KILLED)
    print(f"{len(names) - 1} mutants, {bad} not as they must be")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
