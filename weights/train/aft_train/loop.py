"""The training loop of all trainers: optimisers, schedule, weight average, checkpoints, the run's CSV and curves.

A run lives in a folder:

    run.json         every option of the run; a resumed run must have the same, save its length
    lock             held by the process that trains
    checkpoint.pt    weights, optimiser state, weight average and step
    log.csv          one row every few steps
    curves.png       the same, drawn
    model/           the finished model directory

What happens at a step depends on the seed, the step and the state in checkpoint.pt alone: random numbers are seeded
anew at every step and batches are functions of it. So a run that was killed and resumed goes on as if it had not been.

A run with --minutes has a time in place of a number of steps: how far it is, and with it the learning rate, follows the
clock, so that on every machine the rate has fallen to 0 when the time is over. Without --run nothing is kept of it but
the model, and stopping it ends it with the model as far as it came.
"""
import copy
import csv
import dataclasses
import fcntl
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from . import card, precision, quality
from .export import check_target, export
from .recipe import Recipe, TrainError, called, schedule


def step_rng(seed, step):
    """numpy's generator of everything random about one step's batch."""
    return np.random.default_rng([seed, step])


def device_of(recipe):
    """(device, autocast dtype or None) of this machine under a recipe."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if recipe.train_dtype == "f32":
        return device, None
    has = torch.cuda.is_bf16_supported() if device == "cuda" else torch.backends.mkldnn.is_available() and bf16_cpu()
    return device, torch.bfloat16 if has or recipe.train_dtype == "bf16" else None


def bf16_cpu():
    """Whether this processor multiplies bf16 itself; emulated it is slower than float32."""
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def optimisers(model, recipe):
    """One or two optimisers over all parameters. Only matrices decay: not norms, biases, embeddings or positions."""
    matrices, rest = [], []
    for name, p in model.named_parameters():
        matrix = p.dim() >= 2 and name.endswith(".weight") and not name.startswith("head.") and ".conv." not in name
        (matrices if matrix else rest).append(p)
    betas = (0.9, recipe.beta2)
    if recipe.optimizer == "adamw":
        groups = [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": rest, "weight_decay": 0.0}]
        return [torch.optim.AdamW(groups, lr=recipe.lr, betas=betas, fused=True)]
    flat = [p for p in matrices if p.dim() == 2]  # Muon takes matrices only: a patch embedding is one of four axes
    deep = [p for p in matrices if p.dim() != 2]
    groups = [{"params": rest, "weight_decay": 0.0}]
    if deep:
        groups.append({"params": deep, "weight_decay": recipe.weight_decay})
    return [torch.optim.Muon(flat, lr=recipe.lr, weight_decay=recipe.weight_decay, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(groups, lr=recipe.lr, betas=betas, fused=True)]


def write_aside(path, write):
    """Have write(file) write a file beside `path`, then put it in its place: a reader sees the old or the new one."""
    aside = path.with_name(path.name + ".tmp")
    try:
        with open(aside, "wb") as f:
            write(f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)  # on a full disk it would stand in the way of smaller files
        raise


class Log:
    """log.csv: a row is a dict; columns are fixed by the run's first rows and grow never."""

    def __init__(self, path, columns, step):
        """Open for a run that stands at `step`: rows after it, of a run that went on unsaved, are taken out.

        So is a row that a crash of the machine cut short.
        """
        self.path, self.columns = path, columns
        kept = [r for r in self.rows() if None not in r.values() and (r.get("step") or "").isdigit()
                and int(r["step"]) <= step]
        write_aside(path, lambda f: f.write(self.text([dict(zip(columns, columns))] + kept)))
        self.file = open(path, "ab")

    def rows(self):
        if not self.path.exists():
            return []
        with open(self.path, newline="") as f:
            return list(csv.DictReader(f))

    def text(self, rows):
        cells = (["" if r.get(c) is None else str(r[c]) for c in self.columns] for r in rows)
        return "".join(",".join(row) + "\n" for row in cells).encode()

    def add(self, row):
        self.file.write(self.text([row]))
        self.file.flush()


def draw(run_dir, metric):
    """curves.png of a run's log.csv: training loss and the held-out metric over the steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    with open(run_dir / "log.csv", newline="") as f:
        rows = list(csv.DictReader(f))
    figure, left = plt.subplots(figsize=(8, 4.5), dpi=100)
    left.plot([int(r["step"]) for r in rows], [float(r["loss"]) for r in rows], color="tab:blue", lw=1, label="loss")
    left.set_xlabel("step")
    left.set_ylabel("training loss", color="tab:blue")
    held = [(int(r["step"]), float(r[metric])) for r in rows if r.get(metric)]
    if held:
        right = left.twinx()
        right.plot(*zip(*held), color="tab:red", marker="o", ms=3, lw=1)
        right.set_ylabel("held-out " + metric, color="tab:red")
        right.annotate(f"{held[-1][1]:.4g}", held[-1], textcoords="offset points", xytext=(-8, 8), ha="right")
    left.grid(alpha=0.3)
    figure.tight_layout()
    write_aside(run_dir / "curves.png", lambda f: figure.savefig(f, format="png"))
    plt.close(figure)


class Run:
    """One training run. A trainer gives it the model and its functions:

    batch(step) -> what loss takes;  loss(model, batch) -> scalar tensor;  evaluate(model) -> the held-out figure, which
    `metric` names. logits(model), of classifiers -> (logits, classes) of what is held out, by which the probabilities
    of the finished model are made what they say. prepare(): what takes time and is no part of it, done when the folder
    is this run's. `options` is everything else that the run depends on, for run.json.
    """

    def __init__(self, args, model, recipe, options, *, batch, loss, evaluate, metric, logits=None,
                 prepare=lambda: None):
        """args: what add_arguments added. Raises ModelError if the model could not be written at its end."""
        self.scratch = None if args.run else tempfile.TemporaryDirectory(prefix="aft-train-")  # the run is not kept
        self.dir, self.recipe, self.metric = Path(args.run or self.scratch.name), recipe, metric
        self.stored_as, self.aft, self.license = args.dtype, args.aft, args.license
        self.command = args.command
        self.dir.mkdir(parents=True, exist_ok=True)
        self.target = check_target(args.out or self.dir / "model", overwrite=True)
        self.batch, self.loss, self.evaluate, self.logits = batch, loss, evaluate, logits
        self.prepare = prepare
        self.options = {**options, **dataclasses.asdict(recipe)}
        if recipe.threads:
            torch.set_num_threads(recipe.threads)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # nothing reads any; the filling takes time
        self.device, self.dtype = device_of(recipe)
        entropy = options.get("kernel_entropy") or 0
        if not 0 <= entropy < np.inf or (entropy and (options.get("one_tap") or not model.convolutions())):
            raise TrainError(f"--kernel-entropy is {entropy:g}, expected 0 or more, for aft-conv without --one-tap")
        if options.get("one_tap"):
            model.learn_one_tap()
        self.model = model.to(self.device)
        self.average = [p.detach().clone() for p in self.model.parameters()] if recipe.ema else None
        self.optimisers = optimisers(self.model, recipe)
        self.step, self.seconds, self.loss_sum, self.loss_count = 0, 0.0, 0.0, 0
        self.stopping = False

    # ---- checkpoint.pt --------------------------------------------------------------------------------------------

    def save(self):
        state = {"step": self.step, "seconds": self.seconds, "loss_sum": self.loss_sum, "loss_count": self.loss_count,
                 "model": self.model.state_dict(), "average": self.average,
                 "optimisers": [o.state_dict() for o in self.optimisers]}
        write_aside(self.dir / "checkpoint.pt", lambda f: torch.save(state, f))

    def restore(self):
        """Take up the run that lies in the folder, if one does. Raises TrainError if it is another one."""
        told = self.dir / "run.json"
        if told.exists():
            try:
                before = dict(json.loads(told.read_text()))
            except (TypeError, ValueError) as e:
                raise TrainError(f"{told} does not say what run it is of: {e}") from None
            now = json.loads(json.dumps(self.options))
            for key in [*now, *(before.keys() - now.keys())]:
                if key not in Recipe.CHANGEABLE and before.get(key) != now.get(key):
                    raise TrainError(f"{self.dir} holds a run with {key} {before.get(key)!r}, not {now.get(key)!r}: "
                                     "give the same options or another --run folder")
        path = self.dir / "checkpoint.pt"
        if path.exists():
            try:
                state = torch.load(path, map_location=self.device, weights_only=True)
                self.model.load_state_dict(state["model"])
                for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
                    optimiser.load_state_dict(saved)
                self.average = state["average"]
                self.step, self.seconds = state["step"], state["seconds"]
                self.loss_sum, self.loss_count = state["loss_sum"], state["loss_count"]
            except Exception as e:
                why = " ".join((str(e) or repr(e)).split("\n")[:2])  # some have no text, some begin with a heading
                raise TrainError(f"{path} is no checkpoint of this run: {why}") from None
        if not self.recipe.minutes and self.step > self.recipe.steps:
            raise TrainError(f"{self.dir} holds a run of {self.step} steps, expected --steps {self.step} or more")
        write_aside(told, lambda f: f.write((json.dumps(self.options, indent=1) + "\n").encode()))

    # ---- the result -----------------------------------------------------------------------------------------------

    def export(self, inputs, figures, data):
        """Write the finished model: its averaged weights, cases of `inputs` and a README.md, its card.

        figures(model) yields (measured on, figure) for the card, data says in words what was learnt; of classifiers
        figures(model, (logits, classes) of what is held out).
        """
        self.model.eval()
        self.swap_average()
        self.model.confine()  # an average of such kernels may lie a little outside
        model, held = self.model.settled(), []
        if self.logits:
            model = copy.deepcopy(model)
            logits, want = self.logits(model)
            temperature = quality.temperature(logits, want)
            model.temper(temperature)
            held = [(logits / temperature, want)]
        with torch.no_grad():
            measured = list(figures(model, *held))
        text = card.text(self.target.name, model, self.recipe, data=data, steps=self.step, done=self.done(),
                         seconds=self.seconds, command=self.command, figures=measured, license=self.license)
        files = {"README.md": text, "curves.png": (self.dir / "curves.png").read_bytes()}
        export(model, self.target, inputs, self.stored_as, files, overwrite=True)
        self.swap_average()
        for on, figure in measured:
            print(f"{figure}  {on}", file=sys.stderr)
        if self.scratch:
            self.scratch.cleanup()
        here = Path.cwd()
        print(self.target.relative_to(here) if self.target.is_relative_to(here) else self.target)

    def finish(self, learns, inputs, figures, data, held):
        """Train, or go on, and write the model. -> False if it was told to stop before its end.

        learns: what a step learns, and data(how many samples were seen): what was learnt, both in words; held: what
        precision.record measures on.
        """
        print(f"{self.model.parameter_count():,} parameters; {learns}; {self.device}, "
              f"{'bf16' if self.dtype else 'float32'}", file=sys.stderr)
        if not self.train():
            return False
        self.export(inputs, figures, data(self.step * self.recipe.batch))
        if self.aft:
            precision.record(self.aft, self.target, held)
        return True

    # ---- the loop -------------------------------------------------------------------------------------------------

    def swap_average(self):
        """Exchange the weights and their average, if one is kept; again to undo."""
        if self.average:
            with torch.no_grad():
                for p, a in zip(self.model.parameters(), self.average):
                    kept = p.detach().clone()
                    p.copy_(a)
                    a.copy_(kept)

    def measure(self):
        """The held-out figure, of the averaged weights, in float32 and without dropout."""
        self.model.eval()
        self.swap_average()
        with torch.no_grad():
            figure = self.evaluate(self.model)
        self.swap_average()
        self.model.train()
        return figure

    def done(self):
        """The share of the run that is over: of its minutes, or of its steps."""
        minutes = self.recipe.minutes
        return self.seconds / (60 * minutes) if minutes else self.step / self.recipe.steps

    def planned_step(self):
        """Where the plan is: at the step itself, or where it has come to by the clock."""
        return self.done() * self.recipe.steps if self.recipe.minutes else self.step

    def train_step(self, forward):
        torch.manual_seed(self.recipe.seed * 1_000_003 + self.step)  # dropout's
        rate = self.recipe.lr * schedule(self.recipe, self.planned_step())
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate
        with torch.autocast(self.device, self.dtype or torch.bfloat16, enabled=self.dtype is not None):
            loss = self.loss(forward, self.batch(self.step))
        if self.options.get("kernel_entropy"):
            loss = loss + self.options["kernel_entropy"] * self.model.kernel_entropy()
        value = loss.item()
        if not np.isfinite(value):
            raise TrainError(f"the loss is {value} at step {self.step}: train with a smaller --lr or a longer --warmup")
        for optimiser in self.optimisers:
            optimiser.zero_grad()
        loss.backward()
        if self.recipe.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        for optimiser in self.optimisers:
            optimiser.step()
        self.model.confine()
        self.step += 1
        if self.average:  # a young average forgets its start faster
            decay = min(self.recipe.ema, (1 + self.step) / (10 + self.step))
            torch._foreach_lerp_(self.average, [p.detach() for p in self.model.parameters()], 1 - decay)
        self.loss_sum, self.loss_count = self.loss_sum + value, self.loss_count + 1
        return rate

    def stop_soon(self, *_):
        """Signal handler: leave after the step that is running, and save. A second signal does not wait for it."""
        self.stopping = True
        now = "to write none" if self.scratch else "to stop at once"
        tqdm.write(f"stopping after this step{' with the model as it is' * bool(self.scratch)}; once more {now}",
                   file=sys.stderr)
        for s in (signal.SIGINT, signal.SIGTERM):
            signal.signal(s, signal.default_int_handler)

    def train(self):
        """Run to the end, resuming what the folder holds. -> True if it got there, False if told to stop before.

        A run that is not kept ends where it is told to stop, unless it has hardly begun.
        """
        with open(self.dir / "lock", "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TrainError(f"{self.dir}: another process trains there") from None
            self.restore()
            self.prepare()
            return self.go_on()

    def bar(self):
        """The progress bar: of steps, or of seconds."""
        timed = self.recipe.minutes
        total, at = (round(60 * timed), round(self.seconds)) if timed else (self.recipe.steps, self.step)
        shape = "{l_bar}{bar}| {n_fmt}/{total_fmt} s{postfix}" if timed else None
        return tqdm(total=total, initial=at, unit="step", smoothing=0.05, file=sys.stderr, bar_format=shape,
                    mininterval=1.0 if sys.stderr.isatty() else 30.0)

    def go_on(self):
        log = Log(self.dir / "log.csv", ["step", "seconds", "lr", "loss", self.metric], self.step)
        forward = torch.compile(self.model) if self.recipe.compile else self.model
        handlers = {s: signal.signal(s, self.stop_soon) for s in (signal.SIGINT, signal.SIGTERM)}
        self.model.train()
        bar = self.bar()
        before = time.monotonic()
        try:
            while self.done() < 1 and not self.stopping:
                rate = self.train_step(forward)
                now = time.monotonic()
                self.seconds, before = self.seconds + now - before, now
                bar.update((min(bar.total, round(self.seconds)) if self.recipe.minutes else self.step) - bar.n)
                self.record(log, rate, bar)
            draw(self.dir, self.metric)
        finally:
            bar.close()
            for s, handler in handlers.items():
                signal.signal(s, handler)
        return self.ended()

    def record(self, log, rate, bar):
        """After a step: its row of log.csv, the held-out figure and a checkpoint, where they are due."""
        recipe, last = self.recipe, self.done() >= 1
        if self.step % recipe.log_every == 0 or last:
            loss = self.loss_sum / self.loss_count
            row = {"step": self.step, "seconds": f"{self.seconds:.1f}", "lr": f"{rate:.4g}", "loss": f"{loss:.6f}"}
            bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
            self.loss_sum, self.loss_count = 0.0, 0
            if self.step % recipe.evaluate_every < recipe.log_every or last:
                row[self.metric] = f"{self.measure():.6f}"
                tqdm.write(f"step {self.step}: held-out {self.metric} {row[self.metric]}", file=sys.stderr)
            log.add(row)
        if not self.scratch and (self.step % recipe.save_every == 0 or last or self.stopping):
            self.save()

    def ended(self):
        """Whether the run is at its end, by itself or because it was told to; says what becomes of one that is not."""
        if self.done() >= 1 or (self.scratch and self.planned_step() > self.recipe.warmup):
            return True
        if self.scratch:
            print("stopped while the learning rate was still rising: no model is written", file=sys.stderr)
        else:
            print(f"stopped at step {self.step}: the same command goes on from there", file=sys.stderr)
        return False


def main(name, parser, train, argv=None):
    """Run a trainer's command line. -> exit code: 0, 130 if it was stopped, 2 for what was asked, 1 for what failed.

    name: as it was called, for messages and the model's card: "aft-train text", or the module.
    """
    args = parser(called(name)).parse_args(argv)
    args.command = [*called(name).split(), *(sys.argv[1:] if argv is None else argv)]
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what is half-written is taken away
    try:
        precision.check_program(args.aft)
        return 0 if train(args) else 130
    except (ValueError, OSError) as e:
        print(f"{name}: {e}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as e:  # no memory, or a worker that was killed
        print(f"{name}: {str(e).splitlines()[0] if str(e) else type(e).__name__}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before the first step, or after the last
        print(f"{name}: stopped, no model is written", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
