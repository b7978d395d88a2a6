"""Operators and copies that a training step puts into the streams of an NPU: those of train_app against a plain PyTorch script with torch_npu."""
import collections
import unittest

from peer_dumps_test import CONFIG, IMAGES, MODELS, PACKAGES, PEER, PEERS, SCRIPT, TOKENS
from peers import Peer
from programs import SOURCE, ProgramTest, in_full, main, train_app
from torch_npu_wheel import PYTHON, needs_cann, of_user

STEPS = 5


def launches(calls):
    """Operators and copies; events and waits are no work of the device."""
    return sum(count for name, count in calls.items() if name.startswith('aclnn') or 'Memcpy' in name or 'Memset' in name)


@in_full
@needs_cann
@unittest.skipUnless(PEER.has('msprobe', 'torchvision', 'timm', 'transformers'), 'torchvision or transformers is not installed (scripts/setup --dev)')
class NpuLaunches(ProgramTest):
    peer = Peer(PYTHON, env=of_user(PYTHONPATH=str(PEERS)), torch_npu='import torch_npu', **{k: v for k, v in PACKAGES.items() if k != 'msprobe'})

    def python(self, *args):
        code, said, error = self.peer.run(*args, cwd=self.dir)
        self.assertEqual(code, 0, (said + error)[-2000:])
        return said

    def ours(self, network, precision):
        folder, total = self.dir / network, []
        optimizer = '{name: adamw, lr: 0.001}' if network == 'gpt2' else '{name: sgd, lr: 0.01, momentum: 0.9}'
        for steps in (3, 3 + STEPS):
            calls = self.dir / f'{network}_{precision}_{steps}'
            config = self.config(CONFIG.format(device='npu', model=MODELS[network].format(folder), data=(TOKENS if network == 'gpt2' else IMAGES).format(folder),
                                               task='task: {name: language_model}' if network == 'gpt2' else '', lr=0.01))
            words = (f'optimizer={optimizer}', f'precision={precision}', f'trainer.max_steps={steps}', 'trainer.max_epochs=-1', 'trainer.log_every_n_steps=1000')
            self.assertDone(train_app(config, *words, cwd=self.dir, env=of_user(SIM_CANN_CALLS=str(calls))))
            total.append(collections.Counter({line.split()[0]: int(line.split()[1]) for line in calls.read_text().splitlines()}))
        return total[1] - total[0]

    def test_a_step_launches_no_more_than_that_of_a_script(self):
        for network in ('resnet18', 'gpt2'):
            (self.dir / network).mkdir()
            self.python(SCRIPT, 'make', network, network)
            for precision in ('32-true', 'bf16-mixed'):
                said = self.python(SOURCE / 'tests/apps/python_launches.py', network, network, precision, STEPS)
                theirs = collections.Counter({line.split()[0]: int(line.split()[1]) for line in said.splitlines() if line.startswith('acl')})
                ours = self.ours(network, precision)
                with self.subTest(network, precision=precision):
                    self.assertGreater(launches(ours), 100 * STEPS)
                    self.assertLessEqual(launches(ours), launches(theirs), {key: (theirs[key], ours[key]) for key in ours | theirs if theirs[key] != ours[key]})


if __name__ == '__main__': main()
