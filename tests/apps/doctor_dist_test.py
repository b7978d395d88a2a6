"""npu_tool doctor --dist: the collectives between real processes, and ranks that hang or die."""
import json
import os
import pathlib
import signal
import subprocess
import time

from programs import BIN, FULL, ProgramTest, main, npu_tool

USAGE, FAILED, PEER = 2, 7, 9
LAUNCH_NAMES = ('RANK', 'WORLD_SIZE', 'LOCAL_', 'MASTER_', 'TORCHELASTIC_', 'SLURM_', 'OMPI_', 'PMI', 'MPI_', 'NPU_TRAIN_LAUNCHER')
PLAIN = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCH_NAMES)}
DTYPES = {'int8', 'uint8', 'int32', 'int64', 'fp16', 'bf16', 'fp32', 'fp64'}
COLLECTIVES = {'all_to_all', 'all_reduce', 'all_gather', 'broadcast'}


def ranks_of(parent):
    """The processes that `parent` started as ranks: process by rank."""
    found = {}
    for path in pathlib.Path('/proc').glob('[0-9]*/stat'):
        try:
            if int(path.read_text().rpartition(')')[2].split()[1]) != parent: continue
            entries = (path.parent / 'environ').read_bytes().split(b'\0')
        except OSError: continue
        rank = [e[5:] for e in entries if e.startswith(b'RANK=')]
        if rank: found[int(rank[0])] = int(path.parent.name)
    return found


class DoctorDist(ProgramTest):
    def document(self, *args, code=0, env=None):
        result = npu_tool('doctor', '--dist', '--json', *args, env={**PLAIN, **(env or {})})
        self.assertEqual(result[0], code, result[1] + result[2])
        return json.loads(result[1])

    def test_every_collective_and_dtype_at_several_numbers_of_ranks(self):
        document = self.document() if FULL else self.document('--nproc', '1,2,4')
        self.assertEqual([world['ranks'] for world in document['worlds']], [1, 2, 4, 8] if FULL else [1, 2, 4])
        for world in document['worlds']:
            self.assertEqual(world['failure'], '')
            checks = {(c['collective'], c['dtype']): c for c in world['collectives']}
            self.assertEqual(set(checks), {(c, d) for c in COLLECTIVES for d in DTYPES} | {('gather', 'text')})
            for check in checks.values(): self.assertTrue(check['ok'], check)
            self.assertEqual({s['collective'] for s in world['speeds']}, COLLECTIVES if world['ranks'] > 1 else set())
            for speed in world['speeds']: self.assertGreater(speed['us'], 0)
        names = {f['name'] for f in document['findings']}
        self.assertLessEqual({'launch', 'loopback', 'host name', 'variables', 'processors', '1 rank', '4 ranks'}, names)

    def test_the_tables_fit_eighty_columns(self):
        result = npu_tool('doctor', '--dist', '--nproc', '1,2', env=PLAIN | {'NCCL_DEBUG': 'WARN'})
        self.assertEqual(result[0], 0, result[1] + result[2])
        for line in result[1].splitlines(): self.assertLessEqual(len(line), 80, line)
        for dtype in DTYPES: self.assertRegex(result[1], rf'(?m)^{dtype} +(- +)?1 2 +1 2 +1 2 +1 2')
        for words in ('NCCL_DEBUG=WARN', 'MB/s', '16.0 MiB'): self.assertIn(words, result[1])
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_the_report_as_a_page(self):
        self.document('--nproc', '2', '--html', self.dir / 'page.html')
        self.assertIn('2 ranks', (self.dir / 'page.html').read_text())

    def test_under_a_launcher_its_ranks_are_checked(self):
        tool = BIN / 'npu_tool'
        result = npu_tool('launch', '--nproc', '3', '--', tool, 'doctor', '--dist', '--json', env=PLAIN)
        self.assertEqual(result[0], 0, result[1] + result[2])
        world, = json.loads(result[1])['worlds']
        self.assertEqual(world['ranks'], 3)
        self.assertEqual(world['failure'], '')
        result = npu_tool('launch', '--nproc', '2', '--', tool, 'doctor', '--dist', '--nproc', '2', env=PLAIN)
        self.assertFails(result, USAGE, 'already rank')

    def test_a_process_that_the_tool_starts_reports_to_a_folder_only(self):
        self.assertEqual(self.assertDone(npu_tool('doctor', '--dist', '--report-folder', self.dir, env=PLAIN)), '')
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ['rank0', 'result.json'])
        places = (self.dir / 'rank0').read_text().splitlines()
        self.assertEqual((places[0], places[-1]), ('waiting for the other ranks', 'done'))
        self.assertEqual(json.loads((self.dir / 'result.json').read_text())['ranks'], 1)

    def test_a_network_card_that_is_not_there_fails_every_world_but_the_first(self):
        document = self.document('--nproc', '1,2', code=FAILED, env={'GLOO_SOCKET_IFNAME': 'none7'})
        self.assertEqual([bool(world['failure']) for world in document['worlds']], [False, True])
        self.assertEqual({f['name']: f['verdict'] for f in document['findings']}['GLOO_SOCKET_IFNAME'], 'fail')

    def ends(self, sent, *args):
        """The failure of a world whose rank 1 gets a signal as soon as it exists."""
        words = [BIN / 'npu_tool', 'doctor', '--dist', '--json', '--nproc', '2', *args]
        tool = self.ended(subprocess.Popen(words, env=PLAIN, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        while 1 not in ranks_of(tool.pid):
            self.assertIsNone(tool.poll(), 'no rank 1 was seen')
            time.sleep(0.001)
        os.kill(ranks_of(tool.pid)[1], sent)
        out, err = tool.communicate(timeout=300)
        self.assertEqual(tool.returncode, FAILED, out + err)
        self.assertEqual(ranks_of(tool.pid), {})
        world, = json.loads(out)['worlds']
        return world['failure']

    def test_a_rank_that_hangs_is_named(self):
        failure = self.ends(signal.SIGSTOP, '--timeout', '8')
        self.assertRegex(failure, r'^rank 1 of 2 \(at: .*\) did not answer within 8')

    def test_a_rank_that_dies_is_named(self):
        self.assertRegex(self.ends(signal.SIGKILL, '--timeout', '8'), r'rank 1 of 2 on host .* was killed by .*SIGKILL')

    def test_a_rank_that_never_comes_is_named_under_a_launcher(self):
        script = (f'if [ $RANK = 1 ]; then until [ -e {self.dir}/over ]; do sleep 0.05; done; exit; fi\n'
                  f'{BIN}/npu_tool doctor --dist --timeout 3; code=$?; touch {self.dir}/over; exit $code')
        result = npu_tool('launch', '--nproc', '2', '--', 'sh', '-c', script, env=PLAIN)
        self.assertEqual(result[0], PEER, result[1] + result[2])
        self.assertIn('after 3 s rank 1 did not come', result[2])

    def test_options_that_cannot_be(self):
        for words, said in ((('--nproc', '0'), '--nproc is 0; allowed: 1 to 1024'), (('--nproc', '2,2'), 'contains 2 twice'),
                            (('--nproc', 'two'), '--nproc'), (('--timeout', '0'), '--timeout'), (('--timeout', '4000'), 'allowed: 1 to 3600'),
                            (('--device', 'cpu'), 'excludes'), (('--explain', 'slow'), 'excludes'),
                            (('configs/quickstart.yaml',), 'excludes')):
            with self.subTest(words): self.assertFails(npu_tool('doctor', '--dist', *words, env=PLAIN), USAGE, said)
        self.assertFails(npu_tool('doctor', '--nproc', '2', env=PLAIN), USAGE, '--nproc requires --dist')


if __name__ == '__main__':
    main()
