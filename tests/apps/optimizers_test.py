"""Optimizers, parameter groups and schedules as a user configures them: over ranks, over a resume, against timm, and what is refused."""
import csv
import json
import re
import unittest

from peers import MODELS_PYTHON, Peer
from programs import FULL, ProgramTest, contents, in_full, main, npu_tool, run_dir, safetensors_of, train_app

PEER = Peer(MODELS_PYTHON, timm='import any_torchvision\nfrom timm.models.vision_transformer import VisionTransformer\nfrom timm.optim import param_groups_layer_decay', torch='import torch')

NETWORK = '''
seed: 7
device: cpu
deterministic: true
rng: portable
precision: {precision}
model: {{name: vit_tiny_cifar10, depth: 3, dim: 32, heads: 2, patch_size: 8}}
data: {{name: generated, train_size: 96, val_size: 16, batch_size: 8, num_workers: 0}}
optimizer: {optimizer}
lr_scheduler: {schedule}
trainer: {{max_epochs: 1, threads: 1}}
checkpoint: {{every_n_epochs: 1}}
'''
GROUPS = 'no_decay: true, layer_decay: 0.75, groups: [{match: heads, lr_mult: 2}, {match: class_token, weight_decay: 0.3}]'
ELEMENTWISE = {'sgd': 'dampening: 0.5, weight_decay: 0.1', 'adam': 'amsgrad: true', 'adamw': 'amsgrad: true', 'rmsprop': 'momentum: 0.9, centered: true', 'adagrad': 'lr_decay: 0.1',
               'adadelta': 'weight_decay: 0.1', 'lion': 'weight_decay: 0.1'}
WHOLE = {'adafactor': 'weight_decay: 0.1', 'muon': 'adamw: [conv_proj, heads]'}
FOLLOWS = '{name: plateau, monitor: train/loss, mode: max, patience: 0}'  # the loss falls, and therefore the rate, too


class Optimizers(ProgramTest):
    def of(self, name, options, precision='32-true', schedule='{name: constant}', groups=GROUPS):
        return self.config(NETWORK.format(precision=precision, schedule=schedule, optimizer=f'{{name: {name}, lr: 0.002, {options}, {groups}}}'), name=f'{name}.yaml')

    def end_of(self, name, config, *args):
        out = self.dir / name
        self.assertDone(train_app(config, f'output.dir={out}', *args))
        return contents(out)

    def assertEqualOverRanks(self, name, options, precision='32-true'):
        config = self.of(name, options, precision)
        one = self.end_of(f'{name}_{precision}', config, 'trainer.accumulate_grad_batches=2')
        for strategy in ('zero2', 'ddp', 'zero1', 'zero3') if FULL else ('zero2',):
            with self.subTest(optimizer=name, strategy=strategy, precision=precision):
                both = self.end_of(f'{name}_{precision}_{strategy}', config, '--nproc', 2, f'trainer.strategy={strategy}')
                for part in ('model.safetensors', 'optimizer.safetensors'): self.assertEqual(both[part], one[part])

    def test_two_ranks_have_the_bits_of_one_process_with_groups(self):
        chosen = ELEMENTWISE if FULL else {'rmsprop': ELEMENTWISE['rmsprop']}
        for name, options in chosen.items():
            self.assertEqualOverRanks(name, options)
            for precision in ('bf16-true', '16-mixed') if FULL else (): self.assertEqualOverRanks(name, options, precision)

    def test_optimizers_of_complete_parameters_refuse_slices_by_name(self):
        for name, options in WHOLE.items():
            self.assertFails(train_app(self.of(name, options), '--nproc', 2, 'trainer.strategy=zero2', f'output.dir={self.dir}/refused'), 2,
                             f'[{name}] needs complete parameters', 'allowed with it: trainer.strategy=single or ddp')

    def test_each_resumes_to_the_bit(self):
        # An epoch has 3 steps: the plateau has counted before the checkpoint, and lowers the rate after it.
        everything = ELEMENTWISE | WHOLE
        for name, options in (everything if FULL else {'muon': WHOLE['muon']}).items():
            with self.subTest(name):
                config = self.of(name, options, precision='16-mixed', schedule=FOLLOWS)
                self.assertIn('bit for bit', self.assertDone(train_app(config, '--verify-resume', '--verify-steps', 4, 'data.train_size=24', 'trainer.max_epochs=9')))

    def test_plateau_lowers_the_rate_and_goes_on_after_a_resume(self):
        config = self.of('sgd', 'momentum: 0.9', schedule=FOLLOWS, groups='no_decay: true')
        rates = {}
        for name, *runs in (('whole', ['trainer.max_epochs=4']), ('parts', ['trainer.max_epochs=2'], ['trainer.max_epochs=4', '--resume', 'auto'])):
            for args in runs:
                self.assertDone(train_app(config, f'output.dir={self.dir}/{name}', *args))
            rates[name] = self.rates(name)
        self.assertEqual(rates['whole'], rates['parts'])
        said = self.assertDoneSays(config)
        self.assertRegex(said, r'lr_scheduler plateau: train/loss no longer improves; the learning rate falls to 0\.0002')

    def assertDoneSays(self, config, *args):
        code, out, err = train_app(config, f'output.dir={self.dir}/said', 'trainer.max_epochs=3', *args)
        self.assertEqual(code, 0, out + err)
        return out + err

    def rates(self, name):
        """Epochs and learning rates of the run's log."""
        with open(run_dir(self.dir / name) / 'metrics.csv') as file: return {(row['epoch'], row['lr']) for row in csv.DictReader(file) if row['lr']}

    def test_groups_that_match_nothing_or_twice_are_refused_by_name(self):
        config = self.of('adamw', 'weight_decay: 0.1', groups='no_decay: true')
        for groups, *words in (('[{match: "backbone.*", lr_mult: 0.1}]', "[optimizer.groups] 'backbone.*' matches no parameter", 'class_token'),
                               ('[{match: heads}, {match: "*.bias", lr_mult: 2}]', "heads.head.bias matches 'heads' and '*.bias'"),
                               ('[{match: heads, lr: 0.1}]', 'optimizer.groups.0.lr'),
                               ('[{lr_mult: 0.1}]', "a group has no 'match'")):
            with self.subTest(groups): self.assertFails(train_app(config, f'optimizer.groups={groups}', f'output.dir={self.dir}/refused'), 2, *words)
        self.assertFails(train_app(config, 'optimizer.layer_decay=0', f'output.dir={self.dir}/refused'), 2, 'optimizer.layer_decay')
        self.assertFails(train_app(config, 'lr_scheduler={name: plateau, monitor: val/acc9}', f'output.dir={self.dir}/refused'), 2, 'lr_scheduler.monitor', 'val/acc9')

    def test_a_group_may_name_what_is_frozen(self):
        config = self.of('adamw', 'weight_decay: 0.1', groups='groups: [{match: conv_proj, lr_mult: 0.5}]')
        self.assertDone(train_app(config, 'model.freeze=[conv_proj]', f'output.dir={self.dir}/frozen'))

    def test_unfreezing_in_stages(self):
        """The same bits after a resume in each stage, and on two ranks; and what is not yet trained does not move."""
        config = self.of('adamw', 'weight_decay: 0.1', groups='no_decay: true, groups: [{match: conv_proj, lr_mult: 0.5}]')
        stages = ('model.freeze=[conv_proj, class_token, encoder]', 'model.unfreeze=[{match: encoder_layer_2, epoch: 1}, {match: "*", epoch: 2}]')
        whole = self.end_of('whole', config, *stages, 'trainer.max_epochs=3', 'trainer.accumulate_grad_batches=2')
        for epochs in (1, 2, 3): parts = self.end_of('parts', config, *stages, 'trainer.accumulate_grad_batches=2', f'trainer.max_epochs={epochs}', '--resume', 'auto')
        self.assertEqual(parts, whole)
        ranks = self.end_of('ranks', config, *stages, 'trainer.max_epochs=3', '--nproc', 2, 'trainer.strategy=ddp')
        for part in ('model.safetensors', 'optimizer.safetensors'): self.assertEqual(ranks[part], whole[part])
        trained, weights = [], []
        for epochs in (1, 2, 3):
            self.end_of(f'until_{epochs}', config, *stages, f'trainer.max_epochs={epochs}')
            folder = run_dir(self.dir / f'until_{epochs}') / 'checkpoints' / 'last'
            trained.append({name.removeprefix('exp_avg/') for name in safetensors_of(folder / 'optimizer.safetensors') if name.startswith('exp_avg/')})
            weights.append(safetensors_of(folder / 'model.safetensors'))
        self.assertEqual(trained[0], {'heads.head.weight', 'heads.head.bias'})
        self.assertEqual({name.split('.')[2] for name in trained[1] if name.startswith('encoder')}, {'encoder_layer_2'})
        self.assertEqual(trained[2], set(weights[2]))
        changed = [{name for name in weights[0] if weights[i][name] != weights[i + 1][name]} for i in (0, 1)]
        self.assertEqual(changed[0], trained[1])
        self.assertEqual(changed[1], trained[2])

    def test_what_unfreezing_refuses(self):
        config = self.of('adamw', 'weight_decay: 0.1', groups='no_decay: true')
        out = f'output.dir={self.dir}/refused'
        self.assertFails(train_app(config, out, 'model.unfreeze=[{match: heads, epoch: 1}]'), 2, 'model.unfreeze', 'no parameter is frozen; hint: model.freeze')
        self.assertFails(train_app(config, out, 'model.freeze=[encoder]', 'model.unfreeze=[{match: heads, epoch: 1}]'), 2, "'heads' matches no frozen parameter")
        self.assertFails(train_app(config, out, 'model.freeze=[encoder]', 'model.unfreeze=[{match: encoder, epoch: 0}]'), 2, 'model.unfreeze.0.epoch')
        self.assertFails(train_app(config, out, 'model.freeze=[encoder]', 'model.unfreeze=[{match: encoder, epoch: 1}]', '--nproc', 2, 'trainer.strategy=zero2'), 2,
                         'model.unfreeze', 'trainer.strategy=ddp')

    def groups_of(self, said):
        """{(learning rate, weight decay): numbers} of the log's lines."""
        found = {}
        for numbers, lr, decay in re.findall(r'optimizer group .*: \d+ parameters, ([\d,]+) numbers, lr (\S+), weight decay (\S+)', said):
            key = round(float(lr), 12), float(decay)
            found[key] = found.get(key, 0) + int(numbers.replace(',', ''))
        return found

    def test_the_log_names_each_group(self):
        said = self.assertDoneSays(self.of('adamw', 'weight_decay: 0.1'))
        self.assertRegex(said, r'optimizer group heads, layer 0 from the output: 1 parameters, 320 numbers, lr 0\.004, weight decay 0\.1')
        self.assertRegex(said, r'optimizer group heads, layer 0 from the output, no decay: 1 parameters, 10 numbers, lr 0\.004, weight decay 0\b')
        self.assertRegex(said, r'optimizer group class_token, layer 4 from the output: 1 parameters, 32 numbers, lr 0\.0006328125, weight decay 0\.3')
        self.assertRegex(said, r'optimizer group layer 1 from the output, no decay: ')

    @in_full
    @unittest.skipUnless(PEER.has('timm', 'torch'), 'there is no Python with timm')
    def test_layer_decay_against_timm(self):
        script = self.dir / 'groups.py'
        script.write_text('import json\nimport any_torchvision\nfrom timm.models.vision_transformer import VisionTransformer\nfrom timm.optim import param_groups_layer_decay\n'
                          'net = VisionTransformer(img_size=32, patch_size=8, num_classes=10, embed_dim=32, depth=3, num_heads=2)\n'
                          'groups = param_groups_layer_decay(net, weight_decay=0.1, layer_decay=0.75)\n'
                          'print(json.dumps([[0.002 * g["lr_scale"], g["weight_decay"], sum(p.numel() for p in g["params"])] for g in groups]))\n')
        code, out, error = PEER.run(script)
        self.assertEqual(code, 0, out + error)
        expected = {(round(lr, 12), decay): numbers for lr, decay, numbers in json.loads(out.splitlines()[-1])}
        said = self.assertDoneSays(self.of('adamw', 'weight_decay: 0.1', groups='no_decay: true, layer_decay: 0.75'))
        self.assertEqual(self.groups_of(said), expected)
        self.assertEqual(len(expected), 10)

    @unittest.skipUnless(PEER.has('torch'), 'the Python package torch is not installed')
    def test_torch_optim_loads_the_groups(self):
        config = self.of('adamw', 'weight_decay: 0.1, amsgrad: true')
        self.assertDone(train_app(config, f'output.dir={self.dir}/run'))
        self.assertDone(npu_tool('weights', '--from', run_dir(self.dir / 'run'), '--to', self.dir / 'torch', '--as', 'training'))
        script = self.dir / 'load.py'
        script.write_text('import glob, json, sys\nimport torch\n'
                          f'path = glob.glob("{self.dir}/torch/**/*.pt*", recursive=True)[0]\n'
                          'saved = torch.load(path, weights_only=True)["optimizer_state_dict"]\n'
                          'groups = saved["param_groups"]\n'
                          'params = [[torch.nn.Parameter(torch.zeros_like(saved["state"][i]["exp_avg"])) for i in g["params"]] for g in groups]\n'
                          'optimizer = torch.optim.AdamW([{"params": p} for p in params], amsgrad=True)\n'
                          'optimizer.load_state_dict(saved)\n'
                          'for p in sum(params, []): p.grad = torch.ones_like(p)\n'
                          'optimizer.step()\n'
                          'print(json.dumps([[g["lr"], g["weight_decay"], g["amsgrad"], sum(p.numel() for p in g["params"])] for g in optimizer.param_groups]))\n')
        code, out, error = PEER.run(script)
        self.assertEqual(code, 0, out + error)
        groups = json.loads(out.splitlines()[-1])
        found = {}
        for lr, decay, amsgrad, numbers in groups:
            self.assertTrue(amsgrad)
            found[round(lr, 12), decay] = found.get((round(lr, 12), decay), 0) + numbers
        self.assertEqual(found, self.groups_of(self.assertDoneSays(config)))


if __name__ == '__main__': main()
