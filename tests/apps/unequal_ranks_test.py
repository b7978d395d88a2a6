"""Ranks that differ: other data, fewer ranks after a restart, a rank without a batch, and ranks that do not connect. Programs as a user
starts them."""
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import unittest

from images import png_of
from programs import BIN, ProgramTest, contents, main, npu_tool, train_app

DATA, DEVICE, PEER = 3, 4, 9
NET = '''
seed: 7
device: cpu
deterministic: true
precision: 32-true
model: {{name: vit_tiny_cifar10, depth: 1, dim: 32, heads: 2, patch_size: 8}}
data: {data}
optimizer: {{name: adamw, lr: 0.002}}
trainer: {{max_epochs: 1, threads: 1, lr_scaling: linear}}
'''
GENERATED = '{name: generated, train_size: 96, val_size: 16, batch_size: 4, num_workers: 0}'
IMAGES = '{name: image_folder, root: images, batch_size: 2, image_size: 32, num_workers: 0}'
OF_A_LAUNCH = ('RANK', 'WORLD_SIZE', 'LOCAL_', 'MASTER_', 'TORCHELASTIC_', 'SLURM_', 'OMPI_', 'PMI', 'MPI_', 'NPU_TRAIN_')
PLAIN = {k: v for k, v in os.environ.items() if not k.startswith(OF_A_LAUNCH)}


def image(seed): return png_of(32, bytes((seed * 13 + i * 7) % 256 for i in range(3 * 32 * 32)))


class UnequalRanks(ProgramTest):
    def launch(self, script, *options, nproc=2, **more):
        """`script` is what the shell of each rank does; the words of train_app are in $TRAIN."""
        env = PLAIN | {'TRAIN': f'{shlex.quote(str((BIN / "train_app").resolve()))} {shlex.quote(str(self.dir / "c.yaml"))}'}
        return npu_tool('launch', '--nproc', nproc, *options, '--', 'sh', '-c', script, env=env, timeout=600, **more)

    def images(self, rank):
        """A folder of two classes with 12 images each, in the folder of a rank."""
        for label in ('cat', 'dog'):
            folder = self.dir / str(rank) / 'images' / 'train' / label
            folder.mkdir(parents=True)
            for i in range(12): (folder / f'{i:02}.png').write_bytes(image(i + 50 * (label == 'dog')))

    def test_ranks_with_other_data_do_not_train(self):
        """The same path on two machines: one image less, another class, other bytes, and another order of the same files."""
        def less(root): (root / 'cat' / '03.png').unlink()
        def renamed(root): (root / 'dog').rename(root / 'wolf')
        def other_bytes(root): (root / 'dog' / '05.png').write_bytes(image(99))
        def other_order(root):
            for a, b in (('00', 'x'), ('01', '00'), ('x', '01')): (root / 'cat' / f'{a}.png').rename(root / 'cat' / f'{b}.png')
        self.config(NET.format(data=IMAGES))
        out = self.dir / 'out'
        train = f'cd {self.dir}/$RANK && exec $TRAIN output.dir={out} trainer.max_steps=1'
        for change, said in ((less, ('samples, and rank 0 (', )), (renamed, ('class 1 of training data: wolf, and rank 0 (', 'training data: dog')),
                             (other_bytes, ('05.png', 'with the digest')), (other_order, ('00.png', 'record '))):
            with self.subTest(change.__name__):
                for rank in (0, 1): self.images(rank)
                change(self.dir / '1' / 'images' / 'train')
                result = self.launch(train)
                self.assertFails(result, DATA, 'the ranks have different data: rank 1 (', *said)
                self.assertFalse(out.exists())
                for rank in (0, 1): shutil.rmtree(self.dir / str(rank))
        for rank in (0, 1): self.images(rank)
        self.assertDone(self.launch(train))

    def test_a_restart_with_fewer_ranks_keeps_the_global_batch_and_the_learning_rate(self):
        """One of four ranks fails at once; two continue, each with two micro-batches a step, and must have the bits of four ranks."""
        self.config(NET.format(data=GENERATED))
        whole, fewer = self.dir / 'whole', self.dir / 'fewer'
        self.assertDone(train_app(self.dir / 'c.yaml', '--nproc', 4, 'dist.reduce=micro_batch', f'output.dir={whole}', env=PLAIN))
        fails = '[ $TORCHELASTIC_RESTART_COUNT$RANK != 03 ] || exit 4; '
        train = f'exec $TRAIN dist.reduce=micro_batch output.dir={fewer}'
        result = self.launch(fails + train, '--max-restarts', 1, '--min-nproc', 1, nproc=4)
        self.assertDone(result)
        self.assertIn('restarted with 2 of 4 ranks: each accumulates 2 micro-batches in the place of 1', result[2])
        self.assertIn('learning rates times 4 for 4 ranks', result[2])
        self.assertIn('effective batch 16 (4 x 2 accumulated x 2 ranks)', result[2])
        for part in ('model.safetensors', 'optimizer.safetensors'): self.assertEqual(contents(whole)[part], contents(fewer)[part], part)
        refused = self.launch(fails + train, '--max-restarts', 1, '--min-nproc', 3, nproc=4)
        self.assertFails(refused, DEVICE, 'no restart: no number of ranks from 3 to 3 divides 4, by which the global batch would stay the same')

    def test_a_run_that_continues_with_another_global_batch_says_so(self):
        config, out = self.config(NET.format(data=GENERATED)), f'output.dir={self.dir}/out'
        self.assertDone(train_app(config, '--nproc', 2, out, 'trainer.max_steps=2', env=PLAIN))
        other = train_app(config, out, 'trainer.max_steps=3', '--resume', 'auto', env=PLAIN)
        self.assertDone(other)
        self.assertIn('the checkpoint was trained with an effective batch of 8 samples, and this run has 4', other[2])
        same = train_app(config, out, 'trainer.max_steps=4', 'trainer.accumulate_grad_batches=2', '--resume', 'auto', env=PLAIN)
        self.assertDone(same)
        self.assertIn('the checkpoint was trained with an effective batch of 4 samples, and this run has 8', same[2])

    def test_a_rank_without_a_batch_in_the_last_round_takes_part_where_a_norm_moves(self):
        """3 micro-batches for two ranks, of a network with BatchNorm."""
        config = self.config(NET.format(data='{name: generated, train_size: 12, val_size: 4, batch_size: 4, num_workers: 0}'))
        net = ['model={name: resnet18, stem: imagenet}', 'optimizer={name: sgd, lr: 0.05}', 'trainer.lr_scaling=none', 'dist.timeout=60']
        one = self.dir / 'one'
        self.assertDone(train_app(config, *net, 'trainer.accumulate_grad_batches=2', f'output.dir={one}', env=PLAIN))
        many = self.dir / 'zero3'
        self.assertDone(train_app(config, '--nproc', 2, *net, 'trainer.strategy=zero3', f'output.dir={many}', env=PLAIN, timeout=600))
        self.assertEqual(contents(one)['model.safetensors'], contents(many)['model.safetensors'])

    def test_synchronised_norms_with_sums_after_each_micro_batch_and_a_rank_with_fewer_of_them(self):
        config = self.config(NET.format(data='{name: generated, train_size: 12, val_size: 4, batch_size: 4, num_workers: 0}'))
        common = ['model={name: resnet18, stem: imagenet}', 'trainer.sync_batchnorm=true', 'trainer.accumulate_grad_batches=2', 'dist.timeout=60']
        ends = []
        for words in (('trainer.strategy=ddp', 'dist.reduce=micro_batch'), ('trainer.strategy=zero2', 'dist.overlap=false')):
            out = self.dir / str(len(ends))
            self.assertDone(train_app(config, '--nproc', 2, *common, *words, f'output.dir={out}', env=PLAIN, timeout=600))
            ends.append(contents(out)['model.safetensors'])
        self.assertEqual(*ends)

    def test_ranks_that_meet_end_with_a_rank_that_does_not_come(self):
        self.config(NET.format(data=GENERATED))
        result = self.launch('[ $RANK = 0 ] || kill -KILL $$; exec $TRAIN dist.timeout=86400')
        self.assertFails(result, PEER, 'ended while the ranks met', 'rank 1 of 2', 'was killed by signal 9')
        self.assertNotIn('of the ranks still run', result[2])  # comes after the grace period of a minute

    def test_one_signal_ends_a_rank_that_waits_for_others(self):
        config = self.config(NET.format(data=GENERATED))
        silent = socket.create_server(('127.0.0.1', 0))  # accepts connections, from which no program reads
        self.addCleanup(silent.close)
        for serves in (False, True):
            port = self.reserved_port() if serves else silent.getsockname()[1]
            env = PLAIN | {'RANK': '0' if serves else '1', 'WORLD_SIZE': '2', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port)}
            with open(self.dir / 'said.txt', 'w') as said:
                process = self.ended(subprocess.Popen([str(BIN / 'train_app'), str(config), 'dist.timeout=86400'], env=env,
                                                      stdin=subprocess.DEVNULL, stdout=said, stderr=said))
            connected = f':{port:04X} 01 '  # an established connection to the port, in the process's table

            def waits():
                table = ''.join(pathlib.Path(f'/proc/{process.pid}/net/{kind}').read_text() for kind in ('tcp', 'tcp6'))
                own = {os.readlink(fd) for fd in pathlib.Path(f'/proc/{process.pid}/fd').iterdir() if fd.is_symlink()}
                return any(connected in line and f'socket:[{line.split()[9]}]' in own for line in table.splitlines())
            self.wait_for(process, waits, 'a connection to the store')
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(300), 128 + signal.SIGTERM, self.said())
            self.assertIn('was stopped while it waited for the other ranks', self.said())


if __name__ == '__main__':
    main()
