"""torch.distributed with torch_npu's ProcessGroupHCCL on the HCCL of sim_cann: every collective against its definition, and what fails."""
import os
import signal
import unittest

import environment

START = '''
import datetime, os, torch, torch_npu, torch.distributed as dist, warnings
warnings.simplefilter('ignore')
# A fault of rank 1 alone.
if os.environ['RANK'] == '1' and 'FAULT' in os.environ: os.environ['SIM_CANN_FAULT'] = os.environ['FAULT']
rank, size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
torch.npu.set_device(int(os.environ.get('DEVICE', rank)))
dist.init_process_group('hccl', timeout=datetime.timedelta(seconds=600))
def of(r, *sizes, dtype=torch.float32):
    """The tensor of rank r, on the host."""
    return torch.randint(-9, 9, sizes, generator=torch.Generator().manual_seed(100 + r)).to(dtype)
def same(name, got, expected):
    got = got.cpu()
    if not torch.equal(got, expected): print(name, 'of', rank, got, expected)
'''
END = '''
dist.destroy_process_group()
print('end')
'''
COLLECTIVES = '''
everyone = range(size)
for dtype in [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.int8]:
    total = sum(of(r, 5, 7, dtype=dtype) for r in everyone)
    x = of(rank, 5, 7, dtype=dtype).npu()
    dist.all_reduce(x)
    same(f'all_reduce {dtype}', x, total)
for op, function in [(dist.ReduceOp.MAX, torch.amax), (dist.ReduceOp.MIN, torch.amin), (dist.ReduceOp.PRODUCT, torch.prod)]:
    x = of(rank, 3).npu()
    dist.all_reduce(x, op=op)
    same(op, x, function(torch.stack([of(r, 3) for r in everyone]), 0))
for dtype in [torch.float32, torch.int64, torch.bool, torch.uint8, torch.bfloat16]:
    x = of(rank, 4, dtype=dtype).npu()
    dist.broadcast(x, size - 1)
    same(f'broadcast {dtype}', x, of(size - 1, 4, dtype=dtype))
    out = torch.empty(size * 4, dtype=dtype, device='npu')
    dist.all_gather_into_tensor(out, of(rank, 4, dtype=dtype).npu())
    same(f'all_gather {dtype}', out, torch.cat([of(r, 4, dtype=dtype) for r in everyone]))
x = of(rank, 6).npu()
dist.reduce(x, 1)
if rank == 1: same('reduce', x, sum(of(r, 6) for r in everyone))
out = torch.empty(2, device='npu')
dist.reduce_scatter_tensor(out, of(rank, 2 * size).npu())
same('reduce_scatter', out, sum(of(r, 2 * size) for r in everyone)[2 * rank:2 * rank + 2])
out = torch.empty(size * 3, device='npu')
dist.all_to_all_single(out, of(rank, size * 3).npu())
same('all_to_all', out, torch.cat([of(r, size * 3)[3 * rank:3 * rank + 3] for r in everyone]))
# Rank r sends r + 1 + j elements to rank j.
send = [[r + 1 + j for j in everyone] for r in everyone]
out = torch.empty(sum(send[r][rank] for r in everyone), device='npu')
dist.all_to_all_single(out, of(rank, sum(send[rank])).npu(), [send[r][rank] for r in everyone], send[rank])
same('all_to_all_v', out, torch.cat([of(r, sum(send[r])).split(send[r])[rank] for r in everyone]))
lists = [torch.empty(r + 1, device='npu') for r in everyone]
dist.all_gather(lists, of(rank, rank + 1).npu())
for r in everyone: same('all_gather_v', lists[r], of(r, r + 1))
out = torch.empty(rank + 1, device='npu')
dist.reduce_scatter(out, [of(10 * rank + r, r + 1).npu() for r in everyone])
same('reduce_scatter_v', out, sum(of(10 * r + rank, rank + 1) for r in everyone))
out = torch.empty(3, device='npu')
dist.scatter(out, [of(10 + r, 3).npu() for r in everyone] if rank == 0 else None, 0)
same('scatter', out, of(10 + rank, 3))
x = torch.empty(4, device='npu')
if rank == 0: dist.send(of(0, 4).npu(), 1)
if rank == 1:
    dist.recv(x, 0)
    same('recv', x, of(0, 4))
x = torch.empty(2, 2, device='npu')
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, of(rank, 2, 2).npu(), (rank + 1) % size), dist.P2POp(dist.irecv, x, (rank - 1) % size)]): work.wait()
same('batch_isend_irecv', x, of((rank - 1) % size, 2, 2))
part = dist.new_group([0, 1])
if rank < 2:
    x = of(rank, 3).npu()
    dist.all_reduce(x, group=part)
    same('group', x, of(0, 3) + of(1, 3))
x = torch.zeros(1 << 20, device='npu') + rank
dist.all_reduce(x)
same('large', x, torch.full((1 << 20,), float(sum(everyone))))
dist.barrier()
'''
HANG = '''
x = torch.ones(4, device='npu')
for _ in range(3): dist.all_reduce(x)
print('before', flush=True)
torch.npu.synchronize()
'''


class Hccl(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import torch_npu  # noqa: F401  once for all ranks

    def check(self, text, size, expected='end\n', **variables):
        for rank, (status, out, err) in enumerate(environment.ranks(START + text + END, size, **variables)):
            self.assertEqual((status, out), (0, expected), f'rank {rank}: {err}')

    def check_fails(self, text, size, error, **variables):
        """Every rank must end with the error."""
        for rank, (status, out, err) in enumerate(environment.ranks(START + text + END, size, **variables)):
            self.assertNotIn('end', out, f'rank {rank}: {err}')
            self.assertNotEqual(status, 0)
            self.assertRegex(err, error)

    def test_every_collective_of_two_and_of_four_ranks(self):
        for size in (2, 4):
            with self.subTest(size): self.check(COLLECTIVES, size)

    def test_sums_are_added_in_the_order_of_the_ranks(self):
        self.check('''
x = torch.tensor([[1e8, 1.], [1., 1e8], [-1e8, -1e8], [1., 0.]][rank]).npu()
dist.all_reduce(x)
print(x.cpu().tolist())
''', 4, '[1.0, 0.0]\nend\n')

    def test_a_collective_waits_for_its_stream_and_the_host_does_not(self):
        self.check('''
import ctypes
release, blocked = os.pipe(), ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: os.read(release[0], 1))
x = torch.zeros(4, device='npu')
dist.all_reduce(x)
torch.npu.synchronize()
ctypes.CDLL('libascendcl.so').aclrtLaunchHostFunc(ctypes.c_void_p(torch.npu.current_stream().npu_stream), blocked, None)
x += rank + 1
work = dist.all_reduce(x, async_op=True)
print(work.is_completed())
os.write(release[1], b'x')
work.wait()
print(x.cpu().tolist(), work.is_completed())
''', 2, 'False\n[3.0, 3.0, 3.0, 3.0] True\nend\n')

    def test_ranks_that_make_different_calls(self):
        self.check_fails('''
x = torch.ones(4 + rank, device='npu')
dist.all_reduce(x)
torch.npu.synchronize()
''', 2, r'HcclAllReduce float32\[4\], sum.*HcclAllReduce float32\[5\], sum|HcclAllReduce float32\[5\], sum.*HcclAllReduce float32\[4\], sum')

    def test_a_rank_that_waits_for_one_that_has_ended_or_is_late(self):
        first, second = environment.ranks(START + HANG + END, 2, FAULT='HcclAllReduce:3:exit')
        self.assertEqual(second[0], 3)
        self.assertNotIn('end', first[1])
        self.assertRegex(first[2], 'HcclAllReduce: .*rank 1 has ended')

        first, second = environment.start_ranks(START + HANG + END, 2, FAULT='HcclAllReduce:3:hang', HCCL_EXEC_TIMEOUT='1')
        status, out, err = first.result()
        os.kill(second.pid, signal.SIGKILL)
        second.result()
        self.assertNotIn('end', out)
        self.assertRegex(err, r'HcclAllReduce: rank 0 waited 1 s for rank 1 in HcclAllReduce float32\[4\], sum, and timed out')

    def test_ranks_that_cannot_meet(self):
        self.check_fails(HANG, 2, r'ranks? \d and rank \d both use device 0; each needs its own', DEVICE='0')
        self.check_fails(HANG, 3, r'3 ranks on one server; allowed for Ascend910A: 1, 2, 4, 8', SIM_CANN_SOC='910A')
        alone = START + 'if rank == 1: os.kill(os.getpid(), 9)\n' + HANG + END
        first, _ = environment.ranks(alone, 2, HCCL_CONNECT_TIMEOUT='1')
        self.assertRegex(first[2], r'did not come within 1 s \(HCCL_CONNECT_TIMEOUT\): 1')

    def test_dtypes_that_a_chip_does_not_reduce(self):
        # Turns the queue off: its thread may report the error of a call after the next synchronize().
        self.check_fails("dist.all_reduce(torch.ones(2, dtype=torch.int16).npu()); torch.npu.synchronize()", 2, 'Ascend910A has no sum of int16', SIM_CANN_SOC='910A', TASK_QUEUE_ENABLE='0')
        self.check_fails("dist.all_reduce(torch.ones(2, dtype=torch.bfloat16).npu()); torch.npu.synchronize()", 2, 'Ascend910A has no bfloat16', SIM_CANN_SOC='910A', TASK_QUEUE_ENABLE='0')


if __name__ == '__main__':
    environment.main()
