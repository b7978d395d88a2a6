"""--verify-resume: the proof that a configuration resumes bit for bit, and that each part of the state is needed for it."""
import re

from programs import ProgramTest, main, train_app

PARTS = ['model', 'optimizer', 'scaler', 'ema', 'rng', 'loader', 'loop']
# {omitted part: parts that then differ some steps after the resume}. The average depends on the weights, but they do not depend on it.
DRIFTS = {'ema': {'ema'}} | {part: {'model', 'optimizer', 'ema'} for part in PARTS if part != 'ema'}

TRANSFORMS = {'crop': '{name: random_crop, padding: 4}', 'flip': 'horizontal_flip',
              'augment': '{name: rand_augment, num_ops: 2, magnitude: 9}', 'erase': '{name: random_erasing, p: 0.5}',
              'normalize': 'normalize'}
MIXES = {'mixup': 'data.mixup_alpha=0.4', 'cutmix': 'data.cutmix_alpha=1.0'}


def augmented(without=None):
    """Overrides for everything that draws random numbers for a batch, except one."""
    steps = [text for name, text in TRANSFORMS.items() if name != without]
    return [text for name, text in MIXES.items() if name != without] + [f'data.train_transforms=[{", ".join(steps)}]']


class VerifyResume(ProgramTest):
    def verify(self, *args):
        return train_app(self.config(), '--verify-resume', *args)

    def test_passes(self):
        self.assertIn('resume verified: 3 + checkpoint + 3 steps equal 6 steps, bit for bit', self.assertDone(self.verify()))

    def test_each_part_that_is_left_out_is_named(self):
        for part in PARTS:
            with self.subTest(part):
                code, out, err = self.verify(*augmented(), '--leave-out', part)
                self.assertEqual(code, 7, out + err)
                self.assertIn(f'\n  not restored from the checkpoint: {part}\n', out)  # only this part
                drifted = re.search(r'different 3 steps after the resume: (.*)', out)
                self.assertTrue(drifted, out)
                self.assertLessEqual(DRIFTS[part], set(drifted[1].split(', ')))

    def test_an_unknown_part_is_a_mistake(self):
        self.assertFails(self.verify('--leave-out', 'weights'), 2, 'weights', *PARTS)

    def test_more_steps_than_the_run_has(self):
        self.assertFails(self.verify('--verify-steps', '40', 'trainer.max_epochs=1'), 2, 'verify-steps')

    def test_augmentation_and_mixing_resume_too(self):
        # An epoch has 6 batches, so the checkpoint is inside the first epoch, and the steps after it reach into the second.
        digests = {}
        for without in (None, 'mixup', 'cutmix', 'augment', 'erase'):
            with self.subTest(without=without):
                out = self.assertDone(self.verify('--verify-steps', '4', 'data.train_size=96', 'trainer.max_epochs=9', *augmented(without)))
                self.assertIn('bit for bit', out)
                digests[without] = re.search(r'weights ([0-9a-f]+)', out)[1]
        self.assertEqual(len(set(digests.values())), 5, digests)  # so each of them had an effect


if __name__ == '__main__': main()
