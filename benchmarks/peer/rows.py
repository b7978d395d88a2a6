"""The table of scripts/bench_peer: the work of each row, and the commands of both sides."""
import dataclasses
import pathlib
import re

SAME_MODEL = ('parameters', 'flops_per_image')


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number that both documents contain, and that makes a row of the table."""
    row: str
    key: str
    says: str  # speed: how many times as fast, above 1 is better; share: ours over the peer's, below 1 is better
    larger: bool = False  # is better

    def sides(self, ours, peer):
        """(numerators, denominators) of the ratio."""
        return (ours, peer) if self.says == 'share' or self.larger else (peer, ours)

    def best(self): return max if self.larger else min

    def direction(self): return 'times as fast, larger is better' if self.says == 'speed' else 'share of the peer, smaller is better'


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two commands that do the same work. `commands` fills in {root}, {cifar} and {jpegs}."""
    work: str
    against: str
    ours: str  # arguments of npu_tool bench
    peer: str  # a program of this folder with its arguments
    figures: tuple
    steps: int = 0  # measured steps; 0: the programs decide
    warmup: int = 0
    needs: tuple = ()
    same: tuple = SAME_MODEL  # numbers that must be equal on both sides
    ours_row: str | None = None  # the row of npu_tool's report with the numbers; None: the top level

    def rows(self): return [f.row for f in self.figures]


def time(row, key='step_ms_min'): return Figure(row, key, 'speed')
def speed(row): return Figure(row, 'samples_per_s', 'speed', larger=True)
def memory(row): return Figure(row, 'peak_rss_mb', 'share')


RESNET, VIT_TINY = '--model resnet50 --image 224 --batch 16', '--model vit_tiny_cifar10 --batch 128'
VIT_B16 = '--model vit_b16 --image 224 --batch 8'
TRANSFORMS = 'random_resized_crop,horizontal_flip,color_jitter,random_rotation,normalize'


def step(work, against, words, figures, ours='', peer='', precision='32-true', peer_precision=None, steps=4, warmup=2, **more):
    """Training steps on one random batch."""
    return Pair(work, against, f'--what step {words} --precision {precision} {ours}',
                f'train.py {words} --precision {peer_precision or precision} {peer}', figures, steps=steps,
                warmup=warmup, same=(*SAME_MODEL, 'batch'), **more)


def bf16_against_bf16(row, needs):
    against = 'eager bf16 autocast'
    more = {'precision': 'bf16-mixed', 'steps': 2, 'warmup': 1, 'needs': (needs,)}
    return [step('ResNet-50 224x224, batch 16, bf16-mixed', against + ', channels_last', RESNET, (time(row),),
                 peer='--channels-last', **more),
            step('ViT-tiny 32x32, batch 128, bf16-mixed', against, VIT_TINY, (time(row),), **more)]


def infer(batch):
    words = f'--model resnet50 --image 224 --batch {batch}'
    return Pair(f'ResNet-50 224x224, inference, batch {batch}, folded', 'eager eval, channels_last',
                f'--what infer {words} --fuse --precision 32-true', f'infer.py {words} --channels-last', (time('P19', 'latency_ms_p50'),),
                steps=50 if batch == 1 else 10, warmup=3, ours_row=f'batch {batch} fused')


def on_gpu(row, work, words, steps, ours='', peer=''):
    more = {'ours': ours, 'precision': 'bf16-mixed', 'steps': steps, 'warmup': 10, 'needs': ('cuda',)}
    return [step(f'{work} on a GPU', against, f'{words} --device cuda', (time(row),), peer=peer + compiled, **more)
            for against, compiled in (('eager bf16 autocast', ''), ('torch.compile, bf16 autocast', ' --compile'))]


PAIRS = (
    step('ViT-tiny 32x32, batch 8: start of the process to the end of the first step', 'eager', '--model vit_tiny_cifar10 --batch 8',
         (Figure('P2', 'first_step_s', 'share'),), steps=1, warmup=1),
    Pair('ResNet-50 32x32, batch 128, complete loop with augmentation', 'eager, channels_last, DataLoader with torchvision',
         '{root}/configs/resnet50_cifar10.yaml data.root={cifar} data.batch_size=128 --what train '
         '--precision 32-true',
         'train.py --model resnet50 --image 32 --batch 128 --channels-last --data {cifar} --workers 2', (speed('P3'), memory('P6')),
         steps=30, warmup=5, needs=('cifar', 'torchvision'), same=(*SAME_MODEL, 'batch')),
    Pair('CIFAR images: crop, mirror, normalise; one core', 'DataLoader with torchvision',
         '{root}/configs/resnet50_cifar10.yaml data.root={cifar} data.batch_size=128 data.num_workers=0 --threads 1 --what loader',
         'data.py --cifar {cifar} --batch 128 --workers 0 --threads 1', (speed('P4'),), needs=('cifar', 'torchvision', 'one core'),
         same=('batch', 'workers')),
    Pair('JPEG images, full augmentation to 224x224, two workers', 'DataLoader with torchvision',
         '{root}/configs/resnet50_imagefolder.yaml data.root={jpegs} data.batch_size=32 data.num_workers=2 data.train_transforms=['
         + TRANSFORMS + '] --what loader',
         'data.py --jpegs {jpegs}/train --batch 32 --workers 2', (speed('P5'),), needs=('jpegs', 'torchvision'), same=('batch', 'workers')),
    step('ResNet-50 224x224, batch 16, training step', 'eager, channels_last', RESNET, (time('P17'), memory('P6')), peer='--channels-last'),
    *bf16_against_bf16('P7', 'no bf16 units'),
    step('ResNet-50 224x224, batch 16, bf16-mixed', 'eager fp32, channels_last', RESNET, (time('P8'), memory('P9')), precision='bf16-mixed',
         peer_precision='32-true', peer='--channels-last', needs=('no bf16 units',)),
    step('ViT-tiny 32x32, batch 128, bf16-mixed', 'eager fp32', VIT_TINY, (time('P8'), memory('P9')), precision='bf16-mixed',
         peer_precision='32-true', needs=('no bf16 units',)),
    *bf16_against_bf16('P10', 'bf16 units'),
    step('ViT-tiny 32x32, batch 128, training step', 'eager', VIT_TINY, (time('P18'),)),
    step('ViT-B/16 224x224, batch 8, training step', 'eager', VIT_B16, (time('P18'),), steps=3),
    infer(1),
    infer(32),
    Pair('ResNet-50 with momentum: how long training waits for a checkpoint', 'torch.save',
         '--what checkpoint --model resnet50 --image 224 --batch 2 --precision 32-true',
         'checkpoint.py --model resnet50 --image 224 --batch 2', (time('P20', 'wait_ms_median'),), steps=10),
    *on_gpu('P21', 'ResNet-50 224x224, batch 256, bf16-mixed', '--model resnet50 --image 224 --batch 256', 50, peer='--channels-last'),
    *on_gpu('P22', 'ResNet-50 32x32, batch 128, bf16-mixed', '--model resnet50 --image 32 --batch 128', 200, peer='--channels-last'),
    *on_gpu('P23', 'ViT-B/16 224x224, batch 128, bf16-mixed', '--model vit_b16 --image 224 --batch 128', 50),
)
ROWS = sorted({row for pair in PAIRS for row in pair.rows()}, key=lambda row: int(row[1:]))


def cifar_is_in(folder): return (pathlib.Path(folder) / 'data_batch_1.bin').is_file()


def has_bf16_units(cpuinfo): return bool(re.search(r'\b(avx512_bf16|bf16)\b', cpuinfo))


def missing(pair, have):
    """The requirements of the pair that this machine does not meet, each with a remedy. `have`: device, cifar, torchvision, bf16_units,
    taskset, python."""
    on_cuda = 'cuda' in pair.needs
    if on_cuda != (have['device'] == 'cuda'): return [f'is measured with --device {"cuda" if on_cuda else "cpu"}']
    pip = f'{have["python"]} -m pip install'
    here = {'cuda': True,
            'jpegs': True,  # are generated unless --jpegs names a folder
            'cifar': have['cifar'],
            'torchvision': have['torchvision'],
            'one core': have['taskset'],
            'bf16 units': have['bf16_units'],
            'no bf16 units': not have['bf16_units']}
    why = {'cifar': 'needs CIFAR-10 in its binary format: download it with scripts/get_data cifar10, or name its folder with --data DIR',
           'torchvision': f'needs torchvision, numpy and pillow: {pip} numpy pillow && {pip} --no-deps torchvision',
           'one core': 'needs the program taskset of the package util-linux',
           'bf16 units': 'is only for CPUs with units for bf16, and this CPU has none',
           'no bf16 units': 'is only for CPUs without units for bf16, and this CPU has them; P10 is the row for it'}
    return [why[need] for need in pair.needs if not here[need]]


def commands(pair, places, how):
    """(ours, peer) as lists of arguments. `places`: root, npu_tool, python, cifar, jpegs; `how`: device, steps, warmup, threads (0: the
    number of the row), core, and the additional arguments of both sides, ours and peer."""
    ours = [places['npu_tool'], 'bench', *pair.ours.split(), '--no-machine', '--no-phases', '--json']
    program, *words = pair.peer.split()
    peer = [places['python'], f'{places["root"]}/benchmarks/peer/{program}', *words]
    if how['device'] == 'cpu': ours += ['--device', 'cpu']  # even if there is a GPU
    if pair.steps:
        steps = str(how['steps'] or pair.steps)
        ours += [{'infer.py': '--infer-steps', 'checkpoint.py': '--pairs'}.get(program, '--steps'), steps]
        peer += ['--steps', steps]
    if pair.warmup:
        for side in (ours, peer): side += ['--warmup', str(how['warmup'] or pair.warmup)]
    if how['threads'] and '--threads' not in ours:
        for side in (ours, peer): side += ['--threads', str(how['threads'])]
    ours, peer = ours + how['ours'], peer + how['peer']
    if 'one core' in pair.needs: ours, peer = (['taskset', '-c', str(how['core']), *side] for side in (ours, peer))
    filled = lambda word: re.sub(r'\{(root|cifar|jpegs)\}', lambda m: str(places[m[1]]), str(word))
    return tuple([filled(word) for word in side] for side in (ours, peer))
