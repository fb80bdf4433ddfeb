"""The parts of a capture that need no torch: what is a call, what passes between calls, whether tapes play, which sizes a file has."""

import json
import math
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
sys.dont_write_bytecode = True

from fsdp_capture.blocks import find_stacks  # noqa: E402
from fsdp_capture.model_file import CaptureError, with_points_before  # noqa: E402
from fsdp_capture.passes import check_clearings  # noqa: E402
from fsdp_capture.op_costs import PRODUCT, Cost  # noqa: E402
from fsdp_capture.op_watch import DispatchedOp, Tensor  # noqa: E402
from fsdp_capture.recorder import Event, ModuleCall, Recording  # noqa: E402
from fsdp_capture.replay import Replay, recorded_peak  # noqa: E402
from fsdp_capture.structure import align, entered_modules, structure_of  # noqa: E402
from fsdp_capture.tapes import CallTape, TapeWriter, interfaces_of  # noqa: E402
from fsdp_capture.trained import check_alike  # noqa: E402
from fsdp_capture.values import MISSING, Storages, aligned_values, find_values  # noqa: E402
from fsdp_rehearsal.step_forward import StepForward  # noqa: E402

STACKS = [["h.0", "h.1"]]
WEIGHT = 7000  # an address


class Parameter:
    def __init__(self, *shape):
        self.shape = shape

    def numel(self):
        return math.prod(self.shape)


class Module:
    def __init__(self, parameters=(), **children):
        self.own, self.children_by_name = list(parameters), children

    def named_children(self):
        return self.children_by_name.items()

    def children(self):
        return self.children_by_name.values()

    def named_parameters(self):
        yield from ((f"p{i}", p) for i, p in enumerate(self.own))
        for name, child in self.named_children():
            yield from ((f"{name}.{below}", p) for below, p in child.named_parameters())

    def parameters(self, recurse=True):
        return [p for _, p in self.named_parameters()] if recurse else self.own

    def named_modules(self, name=""):
        yield name, self
        for child_name, child in self.named_children():
            yield from child.named_modules(f"{name}.{child_name}" if name else child_name)

    def modules(self):
        return [module for _, module in self.named_modules()]

    def get_submodule(self, name):
        module = self
        for part in name.split("."):
            module = module.children_by_name[part]
        return module


class Leaf(Module):
    pass


class Block(Module):
    pass


def block(width):
    return Block(a=Leaf([Parameter(width, width)]))


def a_step(names=("h.0", "h.1"), saved=()):
    """A batch of 1000 bytes goes through modules that each make 400 bytes and read what the one before made; the backward runs the
    last first, makes 400 bytes for each and lets go of what the forward made. `saved`: modules that keep a tensor of 50 more."""
    recording = Recording(calls=[ModuleCall("", "Net", -1)], older=[WEIGHT])
    events, made = recording.events, {}

    def alloc(size, call=-1, window=-1):
        recording.sizes.append(size)
        events.append(Event("alloc", len(recording.sizes) - 1, size, call, window))
        return len(recording.sizes) - 1

    last = alloc(1000)
    events.append(Event("enter", 0, 0, 0))
    for place, name in enumerate(names):
        call = len(recording.calls)
        recording.calls.append(ModuleCall(name, "Block", 0))
        events.append(Event("enter", call, 0, call))
        events.append(Event("node", place, 0, call))
        made[name] = [alloc(400, call)] + ([alloc(50, call)] if name in saved else [])
        given = [Tensor(0, 400, (100,), "float32", True)]
        recording.ops.append(DispatchedOp("mm", given, given * len(made[name]), Cost(PRODUCT, 10, 20, 2)))
        recording.reads.append([last, -1])
        recording.makes.append(made[name])
        events.append(Event("op", len(recording.ops) - 1, 0, call))
        events.append(Event("save", last, 0, call))
        events.append(Event("leave", call, 0, call))
        last = made[name][0]
    events.append(Event("leave", 0, 0, 0))
    events.append(Event("end", last))
    recording.loss, recording.losses = last, [last]
    for place, name in reversed(list(enumerate(names))):
        window = len(recording.windows)
        recording.windows.append(("MmBackward0", place))
        events.append(Event("window", window, 0, -1, window))
        gradient = alloc(400, -1, window)
        for number in (*made[name], gradient):
            events.append(Event("free", number, recording.sizes[number], -1, window))
    return recording


def storages_of(recording):
    return Storages(structure_of(recording, STACKS, {WEIGHT: "weight"}))


class Stacks(unittest.TestCase):
    def test_siblings_of_one_kind_are_a_stack(self):
        root = Module(wte=Leaf([Parameter(9, 4)]), h=Module(**{"0": block(4), "1": block(4)}))
        self.assertEqual(find_stacks(root), [["h.0", "h.1"]])

    def test_siblings_of_other_shapes_stack_unless_their_parts_repeat(self):
        """The stages of a U-Net; blocks that have blocks themselves are looked into."""
        root = Module(h=Module(**{"0": block(4), "1": block(4), "2": block(8)}))
        self.assertEqual(find_stacks(root), [["h.0", "h.1", "h.2"]])
        stages = {str(i): Block(x=block(4 + i), y=block(4 + i), z=Leaf([Parameter(i, 9)])) for i in range(2)}
        self.assertEqual(find_stacks(Module(stages=Module(**stages))), [["stages.0.x", "stages.0.y"], ["stages.1.x", "stages.1.y"]])

    def test_siblings_of_other_shapes_do_not_stack_if_blocks_must_be_equal(self):
        root = Module(h=Module(**{"0": block(4), "1": block(4), "2": block(8)}))
        self.assertEqual(find_stacks(root, are_alike=True), [["h.0", "h.1"]])

    def test_module_called_again_is_a_block(self):
        root = Module(wte=Leaf([Parameter(9, 4)]), layer=block(4), head=Leaf([Parameter(40, 9)]))
        self.assertEqual(find_stacks(root, {name: 1 for name, _ in root.named_modules()}), [])
        self.assertEqual(find_stacks(root, {"": 1, "wte": 2, "layer": 12, "layer.a": 12, "head": 1}), [["layer"]])

    def test_single_large_module_is_a_block_but_the_model_is_not(self):
        root = Module(inner=Module(top=block(4), bottom=Module(b=Leaf([Parameter(5, 4)])), rest=Leaf([Parameter(4, 4)])))
        self.assertEqual(find_stacks(root), [["inner.top"], ["inner.bottom"]])
        small = Module(top=block(4), rest=Leaf([Parameter(16, 16)]))
        self.assertEqual(find_stacks(small), [])

    def test_models_trained_in_turns_do_not_stack(self):
        """A GAN's, each of which is a root, even where two are alike."""
        alike = Module(a=block(4), b=block(4), c=Leaf([Parameter(4, 4)]))
        self.assertEqual(find_stacks(alike, tops=["a", "b"]), [])
        root = Module(small=block(4), large=block(5))
        self.assertEqual(find_stacks(root, tops=["small", "large"]), [])

    def test_uncalled_modules_do_not_stack(self):
        root = Module(h=Module(**{"0": block(4), "1": block(4)}))
        self.assertEqual(find_stacks(root, {"": 1}), [])

    def test_sibling_leaves_do_not_stack(self):
        self.assertEqual(find_stacks(Module(q=Leaf([Parameter(4, 4)]), k=Leaf([Parameter(4, 4)]))), [])


class Structures(unittest.TestCase):
    def test_a_run_of_a_block_is_a_call_with_its_backward(self):
        structure = structure_of(a_step(), STACKS, {WEIGHT: "weight"})
        self.assertEqual([call.member for call in structure.calls], ["h.0", "h.1"])
        self.assertTrue(all(part.has_backward for part in structure.parts))
        self.assertEqual(structure.parameter_reads, [{"weight"}, {"weight"}])
        self.assertEqual(structure.before_root, {0})
        backward = [structure.part_of_event[i] for i, e in enumerate(structure.recording.events) if e.what == "free"]
        self.assertEqual(backward, [1, 1, 0, 0])

    def test_variable_is_freed_after_the_root_returns(self):
        """As the logits of the step before, where `logits = model(x)` has its value."""
        recording = a_step()
        after = next(i for i, e in enumerate(recording.events) if e.what == "leave" and e.number == 0) + 1
        recording.sizes.append(4)
        recording.events[after:after] = [Event("free", -1, 400), Event("alloc", len(recording.sizes) - 1, 4), Event("node", 99)]
        structure = structure_of(recording, STACKS, {})
        self.assertEqual([call.after_root for call in structure.calls], [False, False, True])
        self.assertEqual(structure.parts[structure.part_of_event[after]].place, (2, 0))

    def test_extra_events_of_another_recording_join_a_neighbor(self):
        names = [f"m{i}" for i in range(10)]
        base, other = (structure_of(a_step(n), [], {}) for n in (names, [*names[:4], "more", *names[4:]]))
        self.assertTrue(align(base, other))
        self.assertEqual([len(part.made) for part in other.parts], [1, 1, 1, 2, 1, 1, 1, 1, 1, 1])

    def test_other_modules_are_another_model(self):
        base, other = (structure_of(a_step(n), [], {}) for n in (("a", "b"), ("c", "d")))
        self.assertFalse(align(base, other))


class Sums(unittest.TestCase):
    """A layer that runs twice: its first gradient is a view, so that autograd adds the second to it in a new tensor."""

    def setUp(self):
        recording = a_step(("layer", "layer"))
        events = recording.events
        windows = [i for i, e in enumerate(events) if e.what == "window"]

        def alloc(at, window):
            recording.sizes.append(640)
            events.insert(at, Event("alloc", len(recording.sizes) - 1, 640, -1, window))
            return len(recording.sizes) - 1

        self.first = alloc(windows[0] + 1, 0)
        at = windows[1] + 2
        self.second, self.total = alloc(at, 1), alloc(at + 1, 1)
        events[at + 2 : at + 2] = [Event("free", self.first, 640, -1, 1), Event("free", self.second, 640, -1, 1)]
        recording.gradients[self.total] = "weight"
        self.storages = Storages(structure_of(recording, [["layer"]], {WEIGHT: "weight"}))
        (self.interface,) = interfaces_of([self.storages], {"weight": 0})
        self.tapes = TapeWriter(self.storages, self.interface, False).run()

    def test_sum_stays_and_both_terms_are_freed(self):
        last, first = (tape.backward[0] for tape in self.tapes)
        self.assertEqual([e for e in first if "param_grad" in e or "add_grad" in e], [["param_grad", 0, 640, 1], ["add_grad", 0]])
        self.assertEqual([e for e in last if "param_grad" in e or "add_grad" in e], [["param_grad", 0, 640], ["add_grad", 0]])

    def test_three_sums_replay_with_the_recorded_peak(self):
        self.assertEqual(Replay(self.storages, self.interface, self.tapes).run(), recorded_peak(self.storages))


class RepeatedRuns(unittest.TestCase):
    """A module that runs several times in a row."""

    def names(self, *names, stacks=()):
        structure = structure_of(a_step(names), list(stacks), {})
        return [[structure.recording.calls[structure.parts[p].call].name for p in call.ops] for call in structure.calls]

    def test_model_around_a_block_separates_its_runs(self):
        self.assertEqual(self.names("a", "layer", "layer", "layer", "b"), [["a", "layer", "", "layer", "", "layer", "b"]])

    def test_single_runs_are_not_separated(self):
        self.assertEqual(self.names("a", "b", "c"), [["a", "b", "c"]])

    def test_runs_of_a_block_are_calls(self):
        self.assertEqual(self.names("layer", "layer", stacks=[["layer"]]), [["layer"], ["layer"]])


class PossibleUnits(unittest.TestCase):
    def entered(self, *calls):
        """`calls`: name and place of the call above."""
        return entered_modules(Recording(calls=[ModuleCall(name, "Module", above) for name, above in calls]))

    def test_module_whose_part_is_called_separately_is_no_unit(self):
        """The table of `talker` is called before it."""
        calls = (("", -1), ("talker.table", 0), ("talker", 0), ("talker.layer", 2))
        self.assertEqual(self.entered(*calls), {"", "talker.table", "talker.layer"})

    def test_module_whose_parts_run_in_its_call_is_a_unit(self):
        self.assertEqual(self.entered(("", -1), ("talker", 0), ("talker.layers.0", 1)), {"", "talker", "talker.layers.0"})

    def test_modules_outside_the_model_are_ignored(self):
        self.assertEqual(self.entered(("", -1), (None, 0)), {""})


class Torch:
    """What a StepForward asks of it."""

    class compiler:
        is_compiling = staticmethod(lambda: False)

    def __init__(self):
        self.grad = True

    def is_grad_enabled(self):
        return self.grad


class Called:
    training = True

    def __init__(self, *parts):
        self.parts = parts

    def named_modules(self, name=""):
        yield name, self
        for place, part in enumerate(self.parts):
            yield from part.named_modules(f"{name}.{place}".lstrip("."))


class Steps(unittest.TestCase):
    def setUp(self):
        self.first, self.inner = Called(), Called()
        self.second = Called(self.inner)
        self.root = Called(self.first, self.second)
        self.seen = []
        phases = type("Phases", (), {"in_backward": False})()
        self.step = StepForward(phases)
        self.step._torch, self.phases = Torch(), phases
        self.step.enter.append(lambda root: self.seen.append("enter"))
        self.step.leave.append(lambda root: self.seen.append("leave"))
        self.step.of(self.root, lambda: self.seen.append("begin"), lambda outputs: self.seen.append(outputs) or outputs)

    def call(self, module, *inside):
        self.step._before(module, ())
        for each in inside:
            self.call(each)
        self.step._after(module, (), None)

    def test_step_begins_with_the_first_part_and_ends_at_backward(self):
        self.call(self.first)
        self.call(self.second, self.inner)
        self.assertEqual(self.seen, ["enter", "begin"])
        self.assertEqual(self.step._close("loss"), "loss")
        self.assertEqual(self.seen, ["enter", "begin", "loss", "leave"])

    def test_step_records_called_parts(self):
        self.call(self.second, self.inner)
        self.call(self.first)
        self.assertEqual(self.step._called, {"0", "1"})

    def test_step_must_cover_the_whole_model(self):
        check_alike([{"encoder", "decoder"}, {"encoder", "decoder"}])
        with self.assertRaisesRegex(CaptureError, "The script calls critic for one backward and not for another"):
            check_alike([{"generator", "critic"}, {"generator"}])

    def test_called_model_needs_no_extra_step(self):
        self.call(self.root, self.first, self.second)
        self.call(Called())
        self.assertEqual(self.seen, [])

    def test_recomputation_is_no_step(self):
        self.phases.in_backward = True
        self.call(self.first)
        self.assertEqual(self.seen, [])

    def test_evaluated_part_is_a_step_by_itself(self):
        self.step._torch.grad, self.root.training = False, False
        self.call(self.first)
        self.call(self.second, self.inner)
        self.assertEqual(self.seen, ["enter", "begin", (), "leave"] * 2)

    def test_part_without_backward_reshards_after_its_step(self):
        self.root.reshard = lambda: self.seen.append("reshard")
        self.call(self.first)
        self.step._at_step(None, (), {})
        self.assertEqual(self.seen, ["enter", "begin", (), "leave", "reshard"])


def turns():
    """Two models in two passes: G makes 400 bytes, D reads them, a backward of D; D reads them again, a backward of both."""
    recording = Recording(said=[["D"], ["D"], ["G"]])
    events = recording.events
    nodes = iter(range(100))

    def call(name, read):
        recording.calls.append(ModuleCall(name, name, -1))
        number, made = len(recording.calls) - 1, len(recording.sizes)
        recording.sizes.append(400)
        recording.ops.append(DispatchedOp("mm", [Tensor(0, 400, (100,), "float32", True)], [Tensor(0, 400, (100,), "float32", True)], Cost(PRODUCT, 1, 2, 2)))
        recording.reads.append(read)
        recording.makes.append([made])
        node = next(nodes)
        events.append(Event("enter", number, 0, number))
        events.append(Event("alloc", made, 400, number))
        events.append(Event("node", node, 0, number))
        events.append(Event("op", len(recording.ops) - 1, 0, number))
        events.append(Event("leave", number, 0, number))
        return made, node

    def backward(loss, *of):
        recording.losses.append(loss)
        events.append(Event("end", loss))
        for node in of:
            recording.windows.append(("Mm", node))
            events.append(Event("window", len(recording.windows) - 1, 0, -1, len(recording.windows) - 1))
        events.append(Event("begin"))

    fake, of_fake = call("G", [])
    first, of_first = call("D", [fake])
    events.append(Event("clear", 0))
    backward(first, of_first)
    events.append(Event("free", first, 400))
    events.append(Event("step", 1))
    second, of_second = call("D", [fake])
    backward(second, of_second, of_fake)
    events.append(Event("step", 2))
    return recording


class Passes(unittest.TestCase):
    def test_a_call_belongs_to_the_backward_that_runs_through_it(self):
        structure = structure_of(turns(), [], {}, ["G", "D"])
        self.assertEqual([(c.top, c.number, c.backward) for c in structure.calls], [("G", 0, 1), ("D", 0, 0), ("D", 1, 1)])
        self.assertEqual(structure.steps, [(0, 1), (1, 2)])
        self.assertEqual(structure.clearings, [(0, 2, 0)])  # after the forward of the first pass, before its backward

    def test_frees_after_a_backward_belong_to_the_next_pass(self):
        structure = structure_of(turns(), [], {}, ["G", "D"])
        gone = Storages(structure).gone[1]
        self.assertEqual((gone.call, gone.is_backward), (2, False))

    def test_two_backwards_through_one_forward_are_refused(self):
        recording = turns()
        recording.windows[1] = ("Mm", 1)  # of the first pass
        with self.assertRaisesRegex(CaptureError, "retain_graph=True"):
            structure_of(recording, [], {}, ["G", "D"])

    def test_a_gradient_within_a_forward_is_refused(self):
        recording = turns()
        recording.windows.append(("Mm", 0))
        recording.events.insert(3, Event("window", len(recording.windows) - 1))
        with self.assertRaisesRegex(CaptureError, "torch.autograd.grad"):
            structure_of(recording, [], {}, ["G", "D"])

    def test_two_calls_in_a_row_are_two(self):
        recording = turns()
        for event in recording.events:
            if event.what == "clear":
                event.what = "free"  # nothing
        recording.calls[1] = ModuleCall("G", "G", -1)
        structure = structure_of(recording, [], {}, ["G", "D"])
        self.assertEqual([c.top for c in structure.calls], ["G", "", "G", "D"])

    def test_gradients_match_their_clearings(self):
        both, critic, none = frozenset({"G", "D"}), frozenset({"D"}), frozenset()
        cleared, given = [[["D"]], [["G"]], []], [critic, both]
        self.assertEqual(check_clearings([frozenset({"G"}), critic], cleared, given), "")
        self.assertIn("in another way than by zero_grad()", check_clearings([none, critic], cleared, given))


class Values(unittest.TestCase):
    def test_output_that_another_call_reads_is_a_value(self):
        values = find_values(storages_of(a_step()))
        self.assertEqual([(v.maker, v.readers) for v in values], [(-1, {0}), (0, {1}), (1, set())])

    def test_value_absent_from_a_recording_is_marked(self):
        first, second = a_step(), a_step(saved=("h.0",))
        second.reads[1].append(second.makes[0][1])
        lists = aligned_values([storages_of(first), storages_of(second)])
        self.assertEqual(len(lists[0]), len(lists[1]))
        self.assertEqual([v.key == MISSING for v in lists[0]].count(True), 1)
        self.assertEqual([v.key == MISSING for v in lists[1]].count(True), 0)


class ReplayedTapes(unittest.TestCase):
    def setUp(self):
        self.storages = storages_of(a_step())
        self.interface = interfaces_of([self.storages], {"weight": 0})[0]

    def tapes(self):
        """What the recording did, by hand: each call makes its output, reads its input until its backward has run."""
        given = [{"storage": 0, "bytes": 400, "kept": False}]
        first = CallTape(forward=[[["alloc", 0, 400]]], outputs=given,
                         backward=[[["alloc", 1, 400], ["release_input", 0], ["free", 1]]])
        second = CallTape(forward=[[["alloc", 0, 400]]], outputs=given,
                          backward=[[["alloc", 1, 400], ["release_input", 0], ["free", 1]]])
        return [first, second]

    def test_peak_equals_that_of_the_recording(self):
        """Batch 1000, two outputs of 400 and a gradient of 400."""
        replay = Replay(self.storages, self.interface, self.tapes())
        self.assertEqual((replay.run(), replay.errors), (2200, []))
        self.assertEqual(recorded_peak(self.storages), 2200)

    def test_double_free_is_an_error(self):
        tapes = self.tapes()
        tapes[1].backward[0].append(["free", 1])
        replay = Replay(self.storages, self.interface, tapes)
        replay.run()
        self.assertEqual(replay.errors, ["(1, 1) is freed twice"])


class Points(unittest.TestCase):
    def model(self, batch, limits=(), modules=("",)):
        return {"modules": list(modules), "parameters": [], "buffers": [], "limits": list(limits),
                "points": [{"dimensions": {"batch": batch}}]}

    def put(self, *models):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.json"
            for model in models:
                path.write_text(json.dumps(with_points_before(str(path), model)))
            return json.loads(path.read_text())

    def test_largest_batch_comes_first_without_duplicates(self):
        model = self.put(self.model(2, ["a"]), self.model(8, ["b"]), self.model(1, ["a"]), self.model(8))
        self.assertEqual([p["dimensions"]["batch"] for p in model["points"]], [8, 2, 1])
        self.assertEqual(model["limits"], ["a", "b"])

    def test_sizes_of_another_model_are_refused(self):
        with self.assertRaisesRegex(CaptureError, "With other sizes the script trains another model: its modules differ."):
            self.put(self.model(2), self.model(4, modules=("", "h")))


if __name__ == "__main__":
    unittest.main()
