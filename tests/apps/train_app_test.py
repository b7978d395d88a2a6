"""train_app as a user runs it: a complete run, its files, its exit codes."""
import csv
import json
import re
import struct
import unittest

from programs import BIN, ProgramTest, SOURCE, main, run, run_dir, train_app


def fp16_of(path):
    """{name: values} of the fp16 tensors of a safetensors file that have several dimensions."""
    content = path.read_bytes()
    length, = struct.unpack_from('<Q', content)
    header = json.loads(content[8:8 + length])
    found = {}
    for name, entry in header.items():
        if entry.get('dtype') != 'F16' or len(entry['shape']) < 2: continue
        begin, end = entry['data_offsets']
        found[name] = struct.unpack_from(f'<{(end - begin) // 2}e', content, 8 + length + begin)
    return found


class TrainApp(ProgramTest):
    def test_a_run_and_its_files(self):
        out = self.assertDone(train_app(self.config(precision='32-true'), f'output.dir={self.dir}/out'))
        self.assertIn('done: trainer.max_epochs reached', out)
        folder = run_dir(self.dir / 'out')
        self.assertIn(str(folder), out)
        rows = list(csv.DictReader((folder / 'metrics.csv').read_text().splitlines()))
        self.assertEqual([r['phase'] for r in rows].count('val'), 3)
        history = json.loads((folder / 'history.json').read_text())
        self.assertEqual(len(history['epochs']), 3)
        self.assertEqual(history['global_step'], 60)
        self.assertLess(history['epochs'][-1]['train']['loss'], history['epochs'][0]['train']['loss'])
        self.assertTrue((folder / 'checkpoints' / 'best' / 'manifest.json').exists())
        self.assertIn('epoch 3/3', out)
        self.assertIn('samples/s', out)

    def test_it_trains_and_validates_on_the_first_batches_only(self):
        """Without learning each loss is that of the first batches, of which the training sees each once in an epoch."""
        def epochs_of(name, *args):
            still = ('optimizer.lr=0', 'model.dropout=0', 'trainer.max_epochs=2', f'output.dir={self.dir}/{name}')
            self.assertDone(train_app(self.config(precision='32-true'), *still, *args))
            return json.loads((run_dir(self.dir / name) / 'history.json').read_text())
        few = epochs_of('few', '--overfit-batches', '3')
        self.assertEqual(few['global_step'], 6)
        losses = [epoch[phase]['loss'] for epoch in few['epochs'] for phase in ('train', 'val')]
        for loss in losses: self.assertAlmostEqual(loss, losses[0], delta=1e-6 * losses[0])
        every = epochs_of('every')
        self.assertEqual(every['global_step'], 40)
        for epoch in every['epochs']: self.assertGreater(abs(epoch['val']['loss'] - epoch['train']['loss']), 1e-4 * losses[0])

    def test_tensorboard_reads_the_events(self):
        try:
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        except ImportError:
            self.skipTest('the Python package tensorboard is not installed')
        self.assertDone(train_app(self.config(precision='32-true'), f'output.dir={self.dir}/out', 'trainer.max_epochs=2'))
        events = EventAccumulator(str(run_dir(self.dir / 'out'))).Reload()
        losses = events.Scalars('val/loss')
        self.assertEqual([e.step for e in losses], [20, 40])
        history = json.loads((run_dir(self.dir / 'out') / 'history.json').read_text())
        for event, epoch in zip(losses, history['epochs']): self.assertAlmostEqual(event.value, epoch['val']['loss'], places=5)
        self.assertIn('train/lr', events.Tags()['scalars'])

    def test_fp16_parameters_without_masters_are_trained_by_every_optimizer(self):
        """O3: all values of each matrix change within three steps, also those that fill vector units."""
        for optimizer in ('{name: sgd, lr: 0.5, momentum: 0.9}', '{name: sgd, lr: 0.5}', '{name: adam, lr: 0.01}', '{name: adamw, lr: 0.01}', '{name: lamb, lr: 0.1}'):
            with self.subTest(optimizer):
                out = self.dir / optimizer[7:12].strip(',: ') / str(len(optimizer))
                self.assertDone(train_app(self.config(precision='O3'), f'optimizer={optimizer}', 'lr_scheduler={}', 'grad_scaler={}', 'average.enabled=false',
                                          'trainer.max_steps=4', 'checkpoint={every_n_train_steps: 1, save_top_k: -1}', f'output.dir={out}'))
                first, last = (fp16_of(run_dir(out) / 'checkpoints' / f'epoch=000-step={step}' / 'model.safetensors') for step in (1, 4))
                self.assertGreater(len(first), 5)
                for name, before in first.items():
                    changed = sum(a != b for a, b in zip(before, last[name], strict=True))
                    self.assertGreater(changed, 0.9 * len(before), name)

    def test_three_hundred_steps_raise_no_alarm_of_a_leak(self):
        for device in ('cpu', 'sim_npu'):
            with self.subTest(device=device):
                result = train_app(self.config(precision='32-true'), f'output.dir={self.dir}/{device}', 'trainer.max_epochs=15', f'device={device}')
                self.assertIn('300 steps', self.assertDone(result))
                self.assertNotIn('leak', result[2])

    def test_a_section_that_is_given_is_enabled(self):
        short = ('trainer.max_epochs=4', f'output.dir={self.dir}/out', 'average.enabled=false', 'average.decay=0.5')
        said = train_app(self.config(), *short, 'early_stopping={patience: 1, min_delta: 1000}')
        self.assertDone(said)
        self.assertIn('early stopping', said[1] + said[2])
        self.assertEqual(len(json.loads((run_dir(self.dir / 'out') / 'history.json').read_text())['epochs']), 2)
        self.assertIn('without effect: average.decay', said[2])
        self.assertNotIn('early_stopping.patience', said[2].split('without effect')[1].splitlines()[0])

    def test_what_a_run_is_too_short_for_is_reported(self):
        schedule = 'lr_scheduler={name: cosine, interval: step, warmup_steps: 8}'
        for steps, reported in ((8, True), (9, False)):
            said = train_app(self.config(), schedule, f'trainer.max_steps={steps}', 'trainer.limit_val_batches=0', 'output.dir=""')
            self.assertDone(said)
            self.assertEqual('the warm-up has 8 steps and the run 8: the learning rate never reaches optimizer.lr' in said[2], reported, said[2])
        for size, reported in ((3, True), (2, False)):
            said = train_app(self.config(), f'lr_scheduler={{name: step, interval: step, step_size: {size}}}', 'trainer.max_steps=3',
                             'trainer.limit_val_batches=0', 'output.dir=""')
            self.assertDone(said)
            self.assertEqual('step never changes the learning rate within the 3 steps of this run' in said[2], reported, said[2])
        for average, reported in (('start: 0, every: 4', True), ('start: 0, every: 3', False), ('start: 1', True), ('start: 0.9', False)):
            said = train_app(self.config(), f'average={{kind: swa, {average}}}', 'trainer.max_epochs=1', 'trainer.max_steps=3', 'trainer.limit_val_batches=0', 'output.dir=""')
            self.assertDone(said)
            self.assertEqual('average.kind=swa: the run ends before its first average' in said[2], reported, said[2])

    def test_usage_errors_end_with_2_and_say_what_to_do(self):
        config = self.config()
        self.assertFails(train_app(), 2, 'configs/quickstart.yaml')
        self.assertFails(train_app(config, 'trainer.max_epoch=3'), 2, 'max_epochs', 'command line')
        self.assertFails(train_app(config, config), 2, 'two are given')
        self.assertFails(train_app(self.dir / 'none.yaml'), 2, 'none.yaml')
        self.assertFails(train_app(self.config('{a: [', 'bad.yaml')), 2, 'bad.yaml:1:')
        self.assertFails(train_app(self.config('model: {name: resnet51}', 'm.yaml')), 2, 'resnet50')
        self.assertFails(train_app(config, 'grad_scaler.enabled=true', 'precision=32-true'), 2, 'grad_scaler')
        self.assertFails(train_app(config, 'data.batch_size=400'), 2, '400', '320')
        self.assertEqual(train_app('--no-such-flag')[0], 2)
        self.assertFails(train_app('--list', 'nonsense'), 2, 'models')

    def test_contradictions_end_with_2_before_a_file_is_touched(self):
        text = 'model: {name: resnet18}\ndata: {name: cifar10, root: nowhere}\noutput: {dir: out}\n'
        for line, key, *words in (
                ('optimizer: {name: adamw, betas: [0.9, 1.0]}', 'betas', 'less than 1'),
                ('optimizer: {name: sgd, momentum: 0, nesterov: true}', 'nesterov', 'momentum above 0'),
                ('optimizer: {name: lamb, betas: [0.9]}', 'betas', 'it needs 2'),
                ('optimizer: {name: sgd, lr: -0.1}', 'lr', 'at least 0'),
                ('optimizer: {name: adam, weight_decay: 2.0e+30}', 'weight_decay', 'less than 1e30'),
                ('lr_scheduler: {name: cosine, min_lr: 0.5}', 'min_lr', "the optimizer's lr, 0.1"),
                ('lr_scheduler: {name: step, step_size: -3}', 'step_size', 'at least 1')):
            with self.subTest(line):
                place = f'c.yaml:4:{line.index(key + ": ") + len(key) + 3}: {line.split(":")[0]}.{key}: '
                self.assertFails(train_app(self.config(text + line + '\n'), cwd=self.dir), 2, place, *words)
        for words in (['checkpoint.monitor=val/f1'], ['early_stopping={enabled: true, monitor: val/acc}'], ['task=regressor', 'checkpoint.monitor=val/acc1']):
            with self.subTest(words): self.assertFails(train_app(self.config(text), *words, cwd=self.dir), 2, '.monitor] no metric', 'there are')
        self.assertEqual([p.name for p in self.dir.iterdir()], ['c.yaml'])

    def test_data_device_and_disk_errors_have_their_codes(self):
        cifar = SOURCE / 'configs' / 'resnet50_cifar10.yaml'
        self.assertFails(train_app(cifar, f'data.root={self.dir}/nowhere'), 3, 'nowhere', 'get_data', 'generated')
        self.assertFails(train_app(self.config(), 'device=cuda:9', f'output.dir={self.dir}/o'), 4, 'cuda')
        self.assertFails(train_app(self.config(), 'output.dir=/proc/none'), 6, '/proc/none')
        self.assertFails(train_app(self.config(), '--resume', self.dir / 'none', f'output.dir={self.dir}/o'), 6, 'none')

    def test_divergence_ends_with_5_and_names_the_cause(self):
        result = train_app(self.config(precision='32-true'), 'optimizer={name: sgd, lr: 1.0e+10}', f'output.dir={self.dir}/out')
        self.assertFails(result, 5, 'diverged', 'learning rate')
        self.assertTrue((run_dir(self.dir / 'out') / 'diverged' / 'manifest.json').exists())
        self.assertFalse((run_dir(self.dir / 'out') / 'checkpoints' / 'last').exists())

    def explained(self, out):
        """The overflow report of a run: the document, and what people read."""
        folder = run_dir(self.dir / out)
        return json.loads((folder / 'overflow_report.json').read_text()), (folder / 'overflow_report.txt').read_text()

    def test_the_first_overflow_is_explained_when_asked_for(self):
        run = ('trainer.max_steps=1', 'trainer.limit_val_batches=0')
        code, out, err = train_app(self.config(), '--detect-anomaly', f'output.dir={self.dir}/out', *run)
        self.assertEqual(code, 0, out + err)  # a dynamic scale falls until the gradients fit
        self.assertIn('overflow explained (attempt 0): backward', err)
        report, text = self.explained('out')
        self.assertEqual((report['attempt'], report['skip_streak'], report['precision'], report['loss_scale']), (0, 1, '16-mixed', 2.0**24))
        self.assertEqual(report['source']['phase'], 'backward')
        self.assertTrue({'conv_proj', 'encoder.layers.encoder_layer_0.mlp.0', 'heads.head'} <= {layer['layer'] for layer in report['layers']})
        self.assertIn('heads.head.weight', report['parameters'])
        self.assertIn('loss scale of 1.68e+07 is too large', report['advice'][0])
        for part in ('source: backward', 'heads.head', *report['advice']): self.assertIn(part, text)
        # A scale that starts high is given sixteen steps to fall.
        self.assertDone(train_app(self.config(), f'output.dir={self.dir}/quiet', *run))
        self.assertFalse((run_dir(self.dir / 'quiet') / 'overflow_report.json').exists())

    def test_an_overflow_that_ends_the_run_is_named(self):
        scale = 'grad_scaler={init_scale: 16777216, dynamic: false}'
        result = train_app(self.config(), '--detect-anomaly', scale, 'trainer.max_consecutive_skips=3', f'output.dir={self.dir}/out')
        report, _ = self.explained('out')
        self.assertFails(result, 5, 'overflowed 3 times in a row', report['source']['op'], report['source']['layer'], report['advice'][0])
        self.assertTrue((run_dir(self.dir / 'out') / 'diverged' / 'manifest.json').exists())

    def test_values_beyond_fp16_are_found_where_they_begin(self):
        result = train_app(self.config(), '--detect-anomaly', 'optimizer={name: sgd, lr: 1.0e+10}', 'grad_scaler={}',
                           f'output.dir={self.dir}/out')
        self.assertFails(result, 5, 'conv2d of conv_proj', 'bf16-mixed')
        report, text = self.explained('out')
        self.assertEqual(report['source'], {'phase': 'forward', 'layer': 'conv_proj', 'op': 'conv2d'})
        first = next(layer for layer in report['layers'] if layer['layer'] == 'conv_proj')
        self.assertIn(first['largest'], ('inf', 'nan'))
        self.assertGreater(first['largest_fp32'], report['largest_of_dtype'])
        self.assertEqual(len(report['parameters']), report['parameters_in_all'])
        self.assertIn('source: forward, conv2d of conv_proj', text)

    def test_gradients_that_are_not_finite_are_explained_in_fp32_too(self):
        result = train_app(self.config(precision='32-true'), '--detect-anomaly', 'optimizer={name: sgd, lr: 1.0e+20}', 'grad_scaler={}',
                           f'output.dir={self.dir}/out')
        self.assertFails(result, 5, 'overflow explained', 'layer_norm', 'diverged')
        report, _ = self.explained('out')
        self.assertEqual((report['precision'], report['skip_streak'], report['source']['phase']), ('32-true', 0, 'forward'))

    def test_each_value_is_explained_by_its_source(self):
        config = self.dir / 'short.yaml'
        config.write_text('model: {name: resnet18}\ndata: {name: generated}\n'
                          'optimizer: adamw\ntrainer:\n  max_epochs: 2\n  gradient_clip_val: 1\nema: {decay: 0.5}\n')
        out = self.assertDone(train_app(config, '--explain-config', 'trainer.max_epochs=3', 'data.batch_size=4', '--overfit-batches', '2'))
        found = {line.split()[0]: line for line in out.splitlines()}
        for key, value, source in (('model.name', 'resnet18', f'{config}:1:15'), ('optimizer.name', 'adamw', f'{config}:3:12'),
                                   ('data.batch_size', '4', 'command line'), ('optimizer.lr', '0.001', 'default'),
                                   ('trainer.max_epochs', '3', 'command line'), ('trainer.gradient_clip_val', '1', f'{config}:6:22'),
                                   ('trainer.overfit_batches', '2', 'command line'), ('seed', r'\d+', 'default'),
                                   ('average.decay', '0.5', f'{config}:7:14')):  # by its earlier name
            self.assertRegex(found[key], rf'^{re.escape(key)} +{value if chr(92) in value else re.escape(value)} +{re.escape(source)}$')
        self.assertFails(train_app(config, '--explain-config', 'trainer.max_epoch=3'), 2, 'max_epochs')
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ['short.yaml'])

    def completed(self, program, *words):
        """What bash offers for the last word."""
        script = f'source <("{BIN}/{program}" --completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _{program} 2> /dev/null; echo "${{COMPREPLY[*]}}"'
        return self.assertDone(run('bash', '-c', script, 'bash', program, *words)).split()

    def test_shells_complete_commands_options_and_keys(self):
        self.assertEqual(self.completed('train_app', 'c.yaml', 'trainer.max_e'), ['trainer.max_epochs='])
        self.assertEqual(self.completed('train_app', '--verify-r'), ['--verify-resume'])
        self.assertEqual(self.completed('train_app', 'optimi'), ['optimizer.', 'optimizers='])
        self.assertEqual(sorted(self.completed('npu_tool', 'find')), ['find-batch', 'find-lr'])
        self.assertEqual(self.completed('npu_tool', 'compare', '--sample'), ['--sample', '--sample-elements'])
        self.assertEqual(self.completed('npu_tool', 'compare', 'a/', 'trainer.'), [])  # takes files, not a configuration
        self.assertIn('trainer.max_steps=', self.completed('npu_tool', 'memory', 'trainer.max'))
        self.assertIn('bashcompinit', self.assertDone(train_app('--completion', 'zsh')))
        self.assertFails(train_app('--completion', 'fish'), 2, "'fish'", 'bash, zsh')

    def test_questions_are_answered_without_training(self):
        self.assertRegex(self.assertDone(train_app('--list', 'models')), r'(?m)^resnet50 +residual network of 50 layers$')
        self.assertRegex(self.assertDone(train_app('--list', 'loggers')), r'(?m)^mlflow +a run in a file store of MLflow$')
        self.assertIn('npu_train', self.assertDone(train_app('--version')))
        printed = self.assertDone(train_app(self.config(), '--print-config', 'trainer.max_epochs=9'))
        self.assertIn('max_epochs: 9', printed)
        again = self.assertDone(train_app(self.config(printed, 'printed.yaml'), '--print-config'))
        self.assertEqual(printed, again)

    def test_the_precision_is_printed_by_layer(self):
        printed = self.assertDone(train_app('configs/quickstart.yaml', '--print-precision', 'precision=bf16-true', 'amp.fp32_modules=[layer4]',
                                            cwd=SOURCE))
        for part in ('mode: bf16-true', 'layer4.0.conv1: {op: conv2d, computes: fp32, parameters: fp32}',
                     'layer3.0.conv1: {op: conv2d, computes: bf16, parameters: bf16}'):
            self.assertIn(part, printed)
        self.assertFails(train_app('configs/quickstart.yaml', '--print-precision', 'amp.fp32_ops=[sofmax]', cwd=SOURCE), 2, 'softmax')

    def test_fast_dev_run_writes_nothing(self):
        self.assertDone(train_app(self.config(), '--fast-dev-run', f'output.dir={self.dir}/out'))
        self.assertFalse((self.dir / 'out').exists())

    def test_a_config_of_the_repository_is_found_from_anywhere_by_path(self):
        self.assertDone(train_app('configs/quickstart.yaml', '--print-config', cwd=SOURCE))


if __name__ == '__main__': main()
