"""Several processes: train_app --nproc, npu_tool launch, scripts/launch, and the launchers of others that are installed here."""
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

from programs import BIN, ProgramTest, SOURCE, main, npu_tool, run, train_app

USAGE, DEVICE = 2, 4
PROBE = BIN.parent / 'tests' / 'launch_probe'  # a rank that joins the others, and prints how it was launched
TORCHRUN = [sys.executable, '-m', 'torch.distributed.run']
HAS_TORCHRUN = subprocess.run([*TORCHRUN, '--help'], capture_output=True).returncode == 0
LAUNCH_NAMES = ('RANK', 'WORLD_SIZE', 'LOCAL_', 'MASTER_', 'TORCHELASTIC_', 'SLURM_', 'OMPI_', 'PMI', 'MPI_', 'NPU_TRAIN_LAUNCHER')
PLAIN = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCH_NAMES)}
RANK_1 = PLAIN | {'RANK': '1', 'WORLD_SIZE': '2', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': '29500'}


def advised(start, **names):
    """The words of the line of docs/distributed.md that begins with `start`. The probe replaces the program, and the values of `names`
    their names."""
    lines = [line for line in (SOURCE / 'docs' / 'distributed.md').read_text().splitlines() if line.startswith(start) and not line.startswith('|')]
    assert len(lines) == 1, lines
    line = lines[0].replace('build/bin/train_app CONFIG', str(PROBE)).replace('PROGRAM ARGUMENTS', str(PROBE))
    for name, value in names.items(): line = line.replace(name, str(value))
    return shlex.split(line)


def met(launcher, nproc, first=0, world_size=None, generation=0):
    """What the probes of one host print, sorted."""
    return sorted(f'{launcher}: rank {first + r} of {world_size or nproc}, local {r} of {nproc}, generation {generation}' for r in range(nproc))


class Launch(ProgramTest):
    def lines(self, result): return sorted(self.assertDone(result).splitlines())

    def test_options_that_cannot_be(self):
        config = self.config(precision='32-true')
        for words, said in (
            (('--nproc', '0'), '--nproc: Value 0 not in range 1 to 1024'),
            (('--nproc', '1025'), 'not in range 1 to 1024'),
            (('--nproc', 'two'), '--nproc'),
            (('--nproc', '2', '--max-restarts', '-1'), '--max-restarts'),
            (('--nproc', '2', '--max-restarts', '1', '--min-nproc', '3'), '3 is more than --nproc 2'),
            (('--nproc', '2', '--min-nproc', '1'), '--min-nproc requires --max-restarts'),
            (('--max-restarts', '1'), '--max-restarts requires --nproc'),
        ):
            with self.subTest(words):
                self.assertFails(train_app(config, *words, env=PLAIN), USAGE, said)
                self.assertFails(npu_tool('launch', *words, 'true', env=PLAIN), USAGE, '--nproc' if words[0] == '--max-restarts' else said)
        self.assertFails(train_app(config, '--nproc', '2', '--verify-resume', env=PLAIN), USAGE, '--verify-resume excludes --nproc')
        self.assertFails(train_app(config, 'trainer.devices=none', env=PLAIN), USAGE, "'none' is neither auto nor a number from 1 to 1024")
        self.assertFails(train_app(config, 'trainer.devices=2', '--nproc', '1', env=PLAIN), USAGE, 'started alone, and 2 are requested')
        self.assertFails(train_app(config, 'trainer.devices=3', env=RANK_1 | {'LOCAL_RANK': '1', 'LOCAL_WORLD_SIZE': '2'}), USAGE,
                         '3 processes are requested, and a script has started 2 on this machine')
        self.assertFails(train_app(config, '--nproc', '2', env=RANK_1), USAGE, 'already rank 1 of 2', 'omit --nproc')
        self.assertFails(npu_tool('launch', '--nproc', '2', 'true', env=RANK_1), USAGE, 'already rank 1 of 2')
        self.assertFails(npu_tool('launch', '--nproc', '2', env=PLAIN), USAGE, 'no program is given')
        self.assertFails(npu_tool('launch', '--nproc', '2', self.dir / 'none', env=PLAIN), USAGE, 'cannot be run: No such file')

    def test_errors_of_a_configuration_are_reported_once(self):
        result = train_app(self.config(), 'trainer.max_epoch=3', '--nproc', '3', env=PLAIN)
        self.assertFails(result, USAGE, 'max_epochs')
        self.assertEqual(result[2].count('error:'), 1, result[2])

    def test_what_prints_does_not_launch(self):
        config = self.config(precision='32-true')
        printed = self.assertDone(train_app(config, '--print-config', env=PLAIN))
        self.assertEqual(self.assertDone(train_app(config, '--print-config', '--nproc', '2', env=PLAIN)), printed)
        self.assertEqual(self.assertDone(train_app('--list', 'models', '--nproc', '2', env=PLAIN)).count('\nresnet50 '), 1)

    def test_one_process_is_the_usual_run(self):
        self.assertIn('done: ', self.assertDone(train_app(self.config(precision='32-true'), '--nproc', '1', '--fast-dev-run', env=PLAIN)))

    def test_a_restart_resumes(self):
        """Uses a program in place of train_app: its name is that of the running program, so it gets the words of a rank."""
        log = self.dir / 'log'
        rank = self.dir / 'rank.sh'
        rank.write_text(f'#!/bin/sh\necho "$TORCHELASTIC_RESTART_COUNT" >> {log}\n[ "$TORCHELASTIC_RESTART_COUNT" = 1 ]\n')
        rank.chmod(0o755)
        self.assertDone(npu_tool('launch', '--nproc', '1', '--max-restarts', '2', rank, env=PLAIN))
        self.assertEqual(log.read_text(), '0\n1\n')

    def test_words_of_a_program_are_its_own(self):
        show = self.dir / 'show.sh'
        show.write_text('#!/bin/sh\nfor word; do echo "$RANK [$word]"; done\n')
        show.chmod(0o755)
        words = ['eval', '--nproc', '7', '-x', '--', 'a b', '--json=1']
        wanted = sorted(f'{rank} [{word}]' for rank in (0, 1) for word in words)
        self.assertEqual(self.lines(npu_tool('launch', '--nproc', '2', show, *words, env=PLAIN)), wanted)
        self.assertEqual(self.lines(npu_tool('launch', '--nproc=2', '--', show, *words, env=PLAIN)), wanted)
        self.assertEqual(self.lines(run(SOURCE / 'scripts' / 'launch', '--nproc', '2', show, *words, env=PLAIN | {'NPU_TRAIN_BIN': str(BIN)})), wanted)

    def test_more_processes_than_processors_are_a_warning(self):
        code, out, err = npu_tool('launch', '--nproc', '600', 'true', env=PLAIN)
        self.assertEqual(code, 0, err)
        self.assertIn('600 processes share', err)

    def test_the_failure_of_a_rank_is_reported(self):
        result = npu_tool('launch', '--nproc', '2', 'sh', '-c', '[ $RANK = 0 ] || exit 4', env=PLAIN)
        self.assertFails(result, DEVICE, f'error: [launch] rank 1 of 2 on host {socket.gethostname()} ended with exit code 4')

    def test_ctrl_c_on_a_terminal_reaches_each_rank_once(self):
        script = f"trap 'echo got >> {self.dir}/got.$RANK' INT; echo ready; while [ ! -e {self.dir}/go ]; do sleep 0.01; done; exit 130"
        master, terminal = os.openpty()
        # Starts a session of its own with this terminal: Ctrl-C goes to the foreground group, which is the launcher's.
        starter = 'import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(1, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])'
        words = [sys.executable, '-c', starter, BIN / 'npu_tool', 'launch', '--nproc', '2', 'sh', '-c', script]
        process = self.ended(subprocess.Popen(words, stdin=terminal, stdout=terminal, stderr=terminal, env=PLAIN))
        os.close(terminal)
        self.addCleanup(os.close, master)
        text = b''
        while text.count(b'ready') < 2: text += os.read(master, 1024)
        os.write(master, b'\x03')
        deadline = time.monotonic() + 300
        while not all((self.dir / f'got.{rank}').exists() for rank in (0, 1)):
            self.assertLess(time.monotonic(), deadline, text)
            time.sleep(0.01)
        (self.dir / 'go').touch()
        self.assertEqual(process.wait(300), 128 + signal.SIGINT)
        for rank in (0, 1): self.assertEqual((self.dir / f'got.{rank}').read_text(), 'got\n')

    def test_our_launcher(self):
        self.assertEqual(self.lines(npu_tool('launch', '--nproc', '3', PROBE, env=PLAIN)), met('npu_train', 3))
        script, *words = advised('scripts/launch --nproc 4 PROGRAM')
        self.assertEqual(self.lines(run(SOURCE / script, *words, env=PLAIN | {'NPU_TRAIN_BIN': str(BIN)})), met('npu_train', 4))

    @unittest.skipUnless(HAS_TORCHRUN, 'there is no torchrun')
    def test_torchrun_on_one_host(self):
        self.assertEqual(self.lines(run(*TORCHRUN, *advised('torchrun --standalone')[1:], env=PLAIN)), met('torchrun', 4))

    @unittest.skipUnless(HAS_TORCHRUN, 'there is no torchrun')
    def test_torchrun_on_two_hosts(self):
        """Two agents with the addresses of this host."""
        names = {'HOST': '127.0.0.1', '29500': self.reserved_port()}
        commands = [[*TORCHRUN, *advised(f'torchrun --no-python --nnodes 2 --node-rank {node}', **names)[1:]] for node in (0, 1)]
        agents = [self.ended(subprocess.Popen(words, env=PLAIN, stdout=subprocess.PIPE, text=True)) for words in commands]
        for node, agent in enumerate(agents):
            out, _ = agent.communicate(timeout=600)
            self.assertEqual(agent.returncode, 0, out)
            self.assertEqual(sorted(out.splitlines()), met('torchrun', 4, first=4 * node, world_size=8))

    @unittest.skipUnless(HAS_TORCHRUN, 'there is no torchrun')
    def test_torchrun_restarts(self):
        script = f'{PROBE} && [ $TORCHELASTIC_RESTART_COUNT = 1 ]'
        out = self.lines(run(*TORCHRUN, '--standalone', '--no-python', '--max-restarts', '1', '--nproc-per-node', '2', 'sh', '-c', script, env=PLAIN))
        self.assertEqual(out, sorted(met('torchrun', 2) + met('torchrun', 2, generation=1)))

    @unittest.skipUnless(shutil.which('mpirun'), 'there is no mpirun')
    def test_mpirun(self):
        more = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1', 'MASTER_PORT': str(self.reserved_port())}
        more |= {'OMPI_MCA_rmaps_base_oversubscribe': '1'}  # there are more ranks than cores
        out = self.lines(run(*advised('mpirun -np 4'), env=PLAIN | more))
        self.assertIn(out, (met('Open MPI', 4), met('MPI', 4)))

    @unittest.skipUnless(shutil.which('srun'), 'there is no srun')
    def test_srun(self):
        words = advised('srun', **{'--nodes 2 --ntasks-per-node 4': '--nodes 1 --ntasks-per-node 2'})
        self.assertEqual(self.lines(run(*words, env=PLAIN)), met('Slurm', 2))

    def test_ranks_of_a_script(self):
        """Ranks start as the description of a pod of Kubernetes' PyTorchJob starts them: rank 0 serves the store."""
        for more, launcher in (({}, 'a script'), ({'KUBERNETES_SERVICE_HOST': '10.96.0.1'}, 'Kubernetes')):
            env = PLAIN | {'WORLD_SIZE': '2', 'MASTER_ADDR': 'localhost', 'MASTER_PORT': str(self.reserved_port())} | more
            ranks = [self.ended(subprocess.Popen([PROBE], env=env | {'RANK': str(r)}, stdout=subprocess.PIPE, text=True)) for r in range(2)]
            for r, process in enumerate(ranks):
                out, _ = process.communicate(timeout=300)
                self.assertEqual(out, f'{launcher}: rank {r} of 2, local 0 of 1, generation 0\n')

    def test_variables_that_contradict_each_other(self):
        self.assertFails(run(PROBE, env=PLAIN | {'RANK': '2', 'WORLD_SIZE': '2'}), USAGE, "RANK is '2'; allowed: a whole number from 0 to 1")


if __name__ == '__main__': main()
