"""A disk that fills up and a disk that cannot be written, each as a small file system that the test mounts."""
import pathlib
import subprocess
import tempfile

from programs import ProgramTest, checkpoints, checksums, main, npu_tool, run_dir, train_app, tree

# A checkpoint has about one megabyte, and all are kept.
RUN = ['model.dim=64', 'model.depth=2', 'checkpoint.save_top_k=-1', 'output.logger=[csv]', 'trainer.max_epochs=2']


class Disk(ProgramTest):
    def mounted(self, size):
        """An empty tmpfs of `size` bytes, gone after the test."""
        place = pathlib.Path(tempfile.mkdtemp(prefix='npu_train_disk_'))
        self.addCleanup(place.rmdir)
        try:
            subprocess.run(['mount', '-t', 'tmpfs', '-o', f'size={size}', 'npu_train_test', str(place)], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError) as e:
            why = getattr(e, 'stderr', b'') or str(e).encode()
            self.skipTest(f'this needs a small file system, and mounting a tmpfs is refused (only root may): {why.decode().strip()}')
        self.addCleanup(subprocess.run, ['umount', '--lazy', str(place)], check=True)
        return place

    def remount(self, place, options):
        subprocess.run(['mount', '-o', f'remount,{options}', str(place)], check=True)

    def train(self, out, *args): return train_app(self.config(), *RUN, f'output.dir={out}', *args)

    def checkpoint_bytes(self):
        out = self.dir / 'measured'
        self.assertDone(self.train(out, 'trainer.max_steps=1'))
        return sum(f['bytes'] for f in checkpoints(out)[0]['files'])

    def assertWhole(self, out, least):
        """Only complete checkpoints, `least` or more, each of them readable; `last` is one of them."""
        folder = run_dir(out) / 'checkpoints'
        whole = [m['folder'] for m in checkpoints(out)]
        self.assertGreaterEqual(len(whole), least)
        self.assertEqual({p.name for p in folder.iterdir()} - {'last', 'best'}, set(whole))
        for name in whole: self.assertDone(npu_tool('eval', '--checkpoint', folder / name))
        self.assertEqual((folder / 'last').resolve().name, whole[-1])
        self.assertDone(npu_tool('eval', '--checkpoint', run_dir(out)))

    def test_a_disk_that_fills_up_between_checkpoints(self):
        size = self.checkpoint_bytes()
        disk = self.mounted(size * 5 // 2)  # enough for two checkpoints
        self.assertFails(self.train(disk), 6, str(disk), 'No space left', 'free some space')
        self.assertWhole(disk, 2)

        # With enough space, the run continues and ends like a run without interruption.
        self.assertDone(self.train(self.dir / 'whole'))
        wanted = len(checkpoints(self.dir / 'whole'))
        self.assertGreater(wanted, len(checkpoints(disk)))
        self.remount(disk, f'size={size * (wanted + 2)}')
        self.assertDone(self.train(disk, '--resume', 'auto'))
        a, b = checksums(disk), checksums(self.dir / 'whole')
        for part in ('model', 'optimizer', 'ema', 'rng'): self.assertEqual(a[f'{part}.safetensors'], b[f'{part}.safetensors'], part)

    def test_a_disk_that_is_full_from_the_start(self):
        disk = self.mounted(1 << 20)
        with open(disk / 'filler', 'wb', buffering=0) as file:
            with self.assertRaises(OSError):
                while True: file.write(bytes(4096))
        self.assertFails(self.train(disk), 6, str(disk), 'No space left')

    def test_a_disk_that_cannot_be_written(self):
        disk = self.mounted(64 << 20)
        self.assertDone(self.train(disk))
        before = tree(disk)
        self.remount(disk, 'ro')
        self.assertFails(self.train(disk), 6, str(disk), 'Read-only file system')
        self.assertFails(self.train(disk, 'trainer.max_epochs=3', '--resume', 'auto'), 6, str(disk), 'Read-only file system')
        self.assertWhole(disk, 3)  # reading works on a read-only disk
        self.assertEqual(tree(disk), before)

    def test_two_files_that_belong_together_appear_both_or_not_at_all(self):
        """A text of which the smaller file fits and the larger one does not; an ONNX file whose weights fit and whose network does not."""
        text = self.dir / 'text.txt'
        text.write_bytes(b'words ' * 20_000)
        disk = self.mounted(64 << 10)
        self.assertFails(npu_tool('tokenize', text, '--to', disk / 'tokens', '--val-fraction', '0.1'), 6, 'No space left')
        self.assertEqual([p for p in disk.rglob('*') if p.is_file()], [])
        export = ('export', '--model', 'vit_tiny_cifar10', 'model.depth=12', 'model.dim=8', 'model.heads=2', 'model.patch_size=16', '--external-data', '--to')
        self.assertDone(npu_tool(*export, self.dir / 'm.onnx'))
        network, weights = self.dir / 'm.onnx', next(self.dir.glob('m.onnx.*.data'))
        page = 4096
        size = (weights.stat().st_size // page + 1 + network.stat().st_size // page // 2) * page
        self.assertGreater(network.stat().st_size, 4 * page)
        disk = self.mounted(size)
        self.assertFails(npu_tool(*export, disk / 'm.onnx'), 6, 'No space left')
        self.assertEqual(list(disk.iterdir()), [])


if __name__ == '__main__': main()
