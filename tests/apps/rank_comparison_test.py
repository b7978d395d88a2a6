"""npu_tool compare --ranks: dumps of real ranks, without a fault and with one fault of one rank."""
import json
import os
import pathlib
import random
import shutil

from programs import BIN, FULL, REPEATABLE, ProgramTest, main, npu_tool, run, run_dir, train_app

USAGE, DATA, DIFFERENT = 2, 3, 7
FAULTS = BIN.parent / 'tests' / 'rank_faults'  # train_app with a section a_fault

TINY = REPEATABLE + '''
device: cpu
model: {name: vit_tiny_cifar10, depth: 1, dim: 32, heads: 2, patch_size: 8, dropout: 0.1}
data: {name: generated, train_size: 160, val_size: 20, batch_size: 8, num_workers: 0}
trainer: {max_steps: 5, threads: 1, gradient_clip_val: 0.5}
dump: {level: module}
'''


class RankComparison(ProgramTest):
    def dump(self, *args, nproc=2, text=TINY, program=FAULTS):
        """The dump of a run with several ranks."""
        folder = self.dir / 'dump'
        shutil.rmtree(folder, ignore_errors=True)
        self.assertDone(run(program, self.config(text), '--nproc', nproc, f'dump.dir={folder}', 'output.dir=""', *args, timeout=600))
        return folder

    def compare(self, folder, *args, code=0):
        result = npu_tool('compare', '--ranks', folder, '--json', *args)
        self.assertEqual(result[0], code, result[1] + result[2])
        return json.loads(result[1])

    def fault(self, kind, *args, nproc=2, text=TINY, **options):
        """What the comparison reports of a run with one fault."""
        given = [f'a_fault.{key}={value}' for key, value in {'kind': kind, 'step': 2, **options}.items()]
        return self.compare(self.dump(*given, *args, nproc=nproc, text=text), code=DIFFERENT)

    def first(self, document, kind, step=2, rank=1):
        first = document['faults'][0]
        self.assertEqual((first['kind'], first['step'], first['rank']), (kind, step, rank), document['faults'])
        self.assertTrue(first['advice'])
        return first

    def test_ranks_without_a_fault_agree(self):
        some = [(4, 'trainer.accumulate_grad_batches=2'), (3, 'precision=16-mixed'), (2, 'rng=native'), (2, 'data.mixup_alpha=0.4', 'dump.task=tensor')]
        others = [(2,), (2, 'precision=bf16-true'), (2, 'data.train_size=84', 'trainer.max_steps=7'), (2, 'dist.reduction=native')]
        for nproc, *args in some + others if FULL else some:
            with self.subTest(args, nproc=nproc):
                document = self.compare(self.dump(*args, nproc=nproc))
                self.assertEqual((document['agrees'], document['faults'], len(document['ranks'])), (True, [], nproc))
                self.assertTrue(document['complete'], document['notes'])
                for rank in range(nproc): self.assertTrue((self.dir / f'dump/step0/rank{rank}/dump.json').exists())
                self.assertGreaterEqual(len(document['steps']), 5)

    def test_every_rank_has_a_folder_in_the_dump_of_the_run(self):
        out = self.dir / 'out'
        self.assertDone(train_app(self.config(TINY), '--nproc', 2, f'output.dir={out}', timeout=600))
        dump = run_dir(out) / 'dump'
        self.assertEqual(sorted(p.name for p in (dump / 'step0').iterdir()), ['rank0', 'rank1'])
        self.assertFalse((pathlib.Path.cwd() / 'dump').exists())
        self.assertTrue(self.compare(dump)['agrees'])
        self.assertFails(npu_tool('compare', '--ranks', run_dir(out)), DATA, 'give the folder dump in it')

    def test_a_bit_of_one_rank_is_found(self):
        """Drawn by a fixed seed: the kind of the fault, its step, its rank, its parameter and its bit."""
        draw = random.Random(5)
        for _ in range(int(os.environ.get('RANK_FAULT_DRAWS', 4 if FULL else 2))):
            kind, found = draw.choice([('gradient', 'reduced gradient'), ('weights before', 'weights before the step'),
                                       ('weights after', 'weights after the step')])
            step, rank, parameter, bit = draw.randrange(1, 5), draw.randrange(3), draw.randrange(20), draw.randrange(24)
            with self.subTest(kind, step=step, rank=rank, parameter=parameter, bit=bit):
                first = self.first(self.fault(kind, nproc=3, step=step, rank=rank, parameter=parameter, bit=bit), found, step, rank)
                self.assertTrue(first['layer'])
                self.assertIn('differs from the other ranks', first['text'])

    def test_the_causes(self):
        for kind, found, said, *args in (('all gradients', 'reduced gradient', 'more parameters'), ('clip', 'clip factor', 'multiplied by'),
                                         ('lr', 'schedule', 'learning rate'), ('portable seed', 'random numbers', 'seed'),
                                         ('native seed', 'random numbers', 'same seed', 'rng=native'),
                                         ('same ids', 'data', 'ids'), ('same samples', 'data', 'content')):
            with self.subTest(kind): self.assertIn(said, self.first(self.fault(kind, *args), found)['text'])

    def test_another_normalisation_is_found_over_all_steps(self):
        document = self.fault('normalisation', step=0)
        self.assertIn('of the inputs is', self.first(document, 'data', 0, document['faults'][0]['rank'])['text'])

    def test_a_gradient_that_is_not_the_sum_of_those_of_the_ranks(self):
        """Equal on all ranks, so that no comparison of bits shows it."""
        folder = self.dump()
        for rank in (0, 1):
            self.edit(folder / f'step3/rank{rank}/rank.json', lambda notes: notes['parameters'][2].update(reduced_sum=notes['parameters'][2]['reduced_sum'] + 1))
        self.assertIn('is not the sum', self.first(self.compare(folder, code=DIFFERENT), 'all-reduce', 3, 0)['text'])

    def test_a_wrong_sum_of_known_values(self):
        folder = self.dump()
        self.edit(folder / 'step1/rank1/rank.json', lambda notes: notes['summed'].__setitem__(1, 7))
        self.assertIn('is 7 on rank 1; it must be 3', self.first(self.compare(folder, code=DIFFERENT), 'all-reduce', 1)['text'])

    def edit(self, path, change):
        notes = json.loads(path.read_text())
        change(notes)
        path.write_text(json.dumps(notes))

    def test_the_report(self):
        folder = self.dump('a_fault.kind=gradient', 'a_fault.step=2')
        result = npu_tool('compare', '--ranks', folder, '--html', self.dir / 'page.html', '--out', self.dir / 'c.json', '--rows', 2)
        self.assertEqual(result[0], DIFFERENT, result[2])
        for words in ('the ranks part at step 2, rank 1, layer ', ': reduced gradient', 'no majority shows which is wrong', ' try: ', 'Losses step rank 0 rank 1 ',
                      '(2 of 5 rows; --rows 0 shows all)', 'alike: '):
            self.assertIn(words, ' '.join(result[1].split()))
        self.assertIn('reduced gradient', (self.dir / 'page.html').read_text())
        self.assertFalse(json.loads((self.dir / 'c.json').read_text())['agrees'])
        self.assertTrue(self.compare(folder, '--steps', '0,1')['agrees'])
        healthy = npu_tool('compare', '--ranks', folder, '--steps', '0')
        for words in ('the ranks agree: 2 ranks, 1 step (0)', 'trainer.lr_scaling', 'mean'): self.assertIn(words, healthy[1])

    def test_a_rank_that_ended_early_and_a_run_with_fewer_ranks(self):
        folder = self.dump(nproc=4)
        shutil.rmtree(folder / 'step4/rank2')
        document = self.compare(folder)
        self.assertFalse(document['complete'])
        self.assertIn('3 of 4 ranks', document['notes'][0])
        self.assertDone(run(FAULTS, self.config(TINY), '--nproc', 2, f'dump.dir={folder}', 'output.dir=""', 'trainer.max_steps=3', timeout=600))
        document = self.compare(folder)  # the ranks and steps of the earlier run are gone
        self.assertEqual((document['complete'], document['steps'], len(document['ranks'])), (True, [0, 1, 2], 2))

    def test_inputs_that_cannot_be(self):
        folder = self.dump('trainer.max_steps=2')
        self.assertFails(npu_tool('compare', '--ranks', folder, folder), USAGE, 'excludes')
        self.assertFails(npu_tool('compare', '--ranks', folder, '--atol', '1'), USAGE, 'excludes')
        self.assertFails(npu_tool('compare', folder), USAGE, 'required')
        self.assertFails(npu_tool('compare', '--ranks', self.dir / 'none'), DATA, 'not a folder')
        self.assertFails(npu_tool('compare', '--ranks', self.dir), DATA, 'contains no step<N>/rank<R>/rank.json')
        self.assertFails(npu_tool('compare', '--ranks', folder, '--steps', '7'), DATA, 'of the requested steps')
        shutil.rmtree(folder / 'step0/rank1')
        shutil.rmtree(folder / 'step1/rank1')
        self.assertFails(npu_tool('compare', '--ranks', folder), DATA, 'no step has the dumps of two ranks')
        (folder / 'step0/rank0/rank.json').write_text('{"step": 0')
        self.assertFails(npu_tool('compare', '--ranks', folder), DATA, 'rank.json')
        alone = self.dir / 'alone'
        self.assertDone(train_app(self.config(TINY), f'dump.dir={alone}', 'output.dir=""', 'trainer.max_steps=1'))
        self.assertFails(npu_tool('compare', '--ranks', alone), DATA, 'the dump of one process')


if __name__ == '__main__':
    main()
