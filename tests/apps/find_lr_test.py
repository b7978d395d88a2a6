"""npu_tool find-lr: the curve of a run with rising rates, and Lightning's suggestion from it."""
import json
import math

from programs import ProgramTest, main, npu_tool

QUICK = ('precision=32-true', 'trainer.threads=1', 'data.train_size=128', 'average.enabled=false', 'optimizer.lr=0.5')


class FindLr(ProgramTest):
    def curve(self, *args):
        return json.loads(self.assertDone(npu_tool('find-lr', self.config(precision='32-true', workers=0), *QUICK, '--json', *args)))

    def test_the_suggestion_is_lightnings(self):
        document = self.curve('--steps', 60, '--min-lr', 1e-5, '--max-lr', 0.1)
        curve = document['curve']
        self.assertEqual(len(curve), 60)  # all points, because the loss does not grow fourfold
        average = 0
        for i, point in enumerate(curve):
            self.assertAlmostEqual(math.log(point['lr'] / 1e-5), i / 59 * math.log(1e4), delta=1e-9)
            average = 0.98 * average + 0.02 * point['loss']
            self.assertAlmostEqual(point['smoothed'], average / (1 - 0.98**(i + 1)), delta=1e-9)
        losses = [p['smoothed'] for p in curve[10:-1]]
        gradient = [losses[1] - losses[0]] + [(b - a) / 2 for a, b in zip(losses, losses[2:])] + [losses[-1] - losses[-2]]
        self.assertEqual(document['suggestion'], curve[10 + gradient.index(min(gradient))]['lr'])
        self.assertLess(min(gradient), 0)
        self.assertEqual(document['least_loss_at'], min(curve, key=lambda p: p['smoothed'])['lr'])

    def test_a_curve_that_ends_early(self):
        curve = self.curve('--max-lr', 1e6, '--steps', 100, 'optimizer={name: sgd, lr: 0.1, momentum: 0}')['curve']
        self.assertLess(len(curve), 100)

    def test_the_text(self):
        out = self.assertDone(npu_tool('find-lr', self.config(precision='32-true', workers=0), *QUICK, '--steps', 40, '--min-lr', 1e-5, '--max-lr', 0.1))
        self.assertRegex(out, r'1\.00e-05 +\d\.\d{4}  #')
        self.assertRegex(out, r'suggestion: optimizer\.lr=\S+, where the loss falls most steeply')

    def test_what_is_refused(self):
        config = self.config(precision='32-true', workers=0)
        self.assertFails(npu_tool('find-lr', config, *QUICK, '--min-lr', 1, '--max-lr', 0.1), 2, '--min-lr is 1 and --max-lr 0.1')
        self.assertFails(npu_tool('find-lr', config, *QUICK, 'optimizer.lr=0'), 2, 'optimizer.lr is 0; it must be more than 0')
        self.assertFails(npu_tool('find-lr'), 2, 'no configuration')
        # With maximize, the loss grows fourfold before there are enough points.
        self.assertFails(npu_tool('find-lr', config, *QUICK, 'optimizer={name: sgd, lr: 0.1, maximize: true}', '--min-lr', 1, '--max-lr', 10), 7)


if __name__ == '__main__': main()
