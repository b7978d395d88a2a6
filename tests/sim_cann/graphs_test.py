"""Graphs on sim_cann: torch.npu.NPUGraph against the same work without a graph, and the functions of AscendCL with each of their errors."""
import json
import unittest

import environment

START = '''
import torch, torch_npu
x, counter, graph = torch.ones(4, device='npu'), torch.zeros(1, device='npu'), torch.npu.NPUGraph()
side = torch.npu.Stream()
'''
# A part of the work in another stream, which joins the capture by events.
FORKS = '''
with torch.npu.graph(graph):
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side): y = x * 2
    torch.npu.current_stream().wait_stream(side)
    z = y + 1
'''
# AscendCL without torch_npu. code() calls a function and returns its error code. Tasks of streams write to `log`.
RAW = '''
import ctypes, json, threading
acl = ctypes.CDLL('libascendcl.so')
P = ctypes.c_void_p
GLOBAL, THREAD, RELAXED = 0, 1, 2
log, kept = [], []

def code(function, *arguments): return getattr(acl, function)(*arguments)
def do(function, *arguments):
    got = code(function, *arguments)
    assert got == 0, (function, got)
def new(function, *arguments):
    out = P()
    do(function, ctypes.byref(out), *arguments)
    return out
def stream(): return new('aclrtCreateStream')
def event(): return new('aclrtCreateEventExWithFlag', 0)
def say(stream, text):
    kept.append(ctypes.CFUNCTYPE(None, P)(lambda _: log.append(text)))
    do('aclrtLaunchHostFunc', stream, kept[-1], None)
def info(stream):
    status, graph = ctypes.c_int(-1), P()
    do('aclmdlRICaptureGetInfo', stream, ctypes.byref(status), ctypes.byref(graph))
    return status.value, graph.value
def end(stream): return code('aclmdlRICaptureEnd', stream, ctypes.byref(P()))
def text():
    acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
    return (acl.aclGetRecentErrMsg() or b'').decode()
def copy(function, to, source, *stream): return code(function, to, ctypes.c_size_t(8), source, ctypes.c_size_t(8), 4, *stream)

do('aclInit', None)
do('aclrtSetDevice', 0)
a, b, c = stream(), stream(), stream()
'''


class Graphs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import torch_npu  # noqa: F401  once for all scripts

    def output(self, text, **variables):
        status, out, err = environment.script(START + text, **variables)
        self.assertEqual(status, 0, err)
        return out.split('\n')[:-1]

    def raw(self, text, **variables):
        """The last line that a program without torch_npu prints, which is JSON."""
        status, out, err = environment.program(RAW + text, **variables)
        self.assertEqual(status, 0, err)
        return json.loads(out.splitlines()[-1])

    def test_a_capture_runs_nothing_and_a_replay_all_of_it_on_present_values(self):
        text = '''
with torch.npu.graph(graph):
    y = (x * 2 + 1).relu()
    counter.add_(1)
print(counter.item())
for i in (1, 2, -3):
    x.fill_(i)
    graph.replay()
    print(y[0].item(), counter.item())
'''
        self.assertEqual(self.output(text), ['0.0', '3.0 1.0', '5.0 2.0', '0.0 3.0'])

    def test_forward_and_backward_are_those_without_a_graph(self):
        text = '''
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)).npu()
batches = [torch.randn(5, 6).npu() for _ in range(3)]
static = batches[0].clone()
def step(x):
    for p in net.parameters(): p.grad = None
    loss = net(x).square().mean()
    loss.backward()
    return [loss.detach()] + [p.grad for p in net.parameters()]
side.wait_stream(torch.npu.current_stream())
with torch.npu.stream(side): step(static)
torch.npu.current_stream().wait_stream(side)
with torch.npu.graph(graph): captured = step(static)
wanted = [step(x) for x in batches]
for x, want in zip(batches, wanted):
    static.copy_(x)
    graph.replay()
    print(all(torch.equal(a, b) for a, b in zip(captured, want, strict=True)), want[1].abs().sum().item() > 0)
print(torch.equal(wanted[0][0], wanted[1][0]))
'''
        self.assertEqual(self.output(text), ['True True'] * 3 + ['False'])

    def test_other_streams_join_and_a_replay_may_be_in_any_stream(self):
        text = FORKS + '''
with torch.npu.stream(side): x.fill_(5)
torch.npu.current_stream().wait_stream(side)
graph.replay()
print(z.cpu().tolist())
with torch.npu.stream(torch.npu.Stream()):
    x.fill_(6)
    graph.replay()
    print(z.cpu().tolist())
graph.reset()
print((x + 1).cpu().tolist())
'''
        self.assertEqual(self.output(text), ['[11.0, 11.0, 11.0, 11.0]', '[13.0, 13.0, 13.0, 13.0]', '[7.0, 7.0, 7.0, 7.0]'])

    def test_a_graph_is_checked_for_races(self):
        """Within the graph, and between a replay and other work."""
        reader = '''
with torch.npu.stream(side): graph.replay()
torch.npu.current_stream().wait_stream(side)
w = z + 1
torch.npu.synchronize()
print('end')
'''
        reader_waits = 'torch.npu.current_stream().wait_stream(side)\n'
        joins = '    torch.npu.current_stream().wait_stream(side)'
        for text, report in ((FORKS + reader, ''), (FORKS + reader.replace(reader_waits, ''), 'aclnnAdds writes .*, and aclnnAdds reads'),
                             (FORKS.replace(joins, joins + '\n    x.mul_(2)') + reader, ''),
                             (FORKS.replace(joins, '    x.mul_(2)\n' + joins) + reader, 'aclnnMuls reads .*, and aclnnInplaceMuls writes')):
            with self.subTest(report):
                _, out, err = environment.script(START + text, SIM_CANN_CHECK='races', TASK_QUEUE_ENABLE='0')
                self.assertIn('end', out, err)
                found = [line for line in err.splitlines() if line.startswith('sim_cann: race')]
                self.assertEqual(len(found), 1 if report else 0, found)
                if report: self.assertRegex(found[0], report)

    def test_what_waits_for_a_captured_stream_is_torch_npus_error_and_can_be_survived(self):
        text = '''
import re
for wait in (torch.npu.synchronize, lambda: torch.npu.current_stream().synchronize(), lambda: x.cpu(), lambda: x.sum().item()):
    try:
        with torch.npu.graph(torch.npu.NPUGraph()):
            counter.add_(1)
            wait()
    except RuntimeError as e:
        print(re.search('1070(27|30)', str(e)) is not None)
with torch.npu.graph(graph): counter.add_(1)
print(counter.item())
graph.replay()
print(counter.item())
'''
        self.assertEqual(self.output(text), ['True'] * 4 + ['0.0', '1.0'])

    def test_a_910A_has_no_graphs(self):
        self.assertEqual(self.raw("print(json.dumps(code('aclmdlRICaptureBegin', a, GLOBAL)))", SIM_CANN_SOC='910A'), 207000)

    def test_tasks_of_all_captured_streams_run_in_their_order_at_each_replay(self):
        text = '''
fork, back = event(), event()
do('aclmdlRICaptureBegin', a, GLOBAL)
say(a, 'first')
do('aclrtRecordEvent', fork, a)
do('aclrtStreamWaitEvent', b, fork)
assert info(a) == info(b) and info(a)[0] == 1 and info(c) == (0, None)
say(b, 'other')
do('aclrtRecordEvent', back, b)
do('aclrtStreamWaitEvent', a, back)
say(a, 'last')
captured, number = info(a)[1], ctypes.c_uint32()
graph = P()
do('aclmdlRICaptureEnd', a, ctypes.byref(graph))
do('aclmdlRIGetId', graph, ctypes.byref(number))
assert graph.value == captured and number.value > 0 and info(a) == info(b) == (0, None)
say(a, 'usual')
do('aclrtSynchronizeDevice')
for _ in range(2): do('aclmdlRIExecuteAsync', graph, c)
do('aclrtSynchronizeStream', c)
acl.sim_cann_calls.restype = ctypes.c_char_p
calls = dict(line.split() for line in acl.sim_cann_calls().decode().splitlines())
do('aclmdlRIDestroy', graph)
print(json.dumps([log, calls['aclmdlRIExecuteAsync'], calls['aclrtLaunchHostFunc']]))
'''
        self.assertEqual(self.raw(text), [['usual'] + ['first', 'other', 'last'] * 2, '2', '7'])

    def test_a_fault_of_a_replay_is_an_error_of_its_stream(self):
        text = '''
graph = P()
do('aclmdlRICaptureBegin', a, GLOBAL)
say(a, 'task')
do('aclmdlRICaptureEnd', a, ctypes.byref(graph))
do('aclmdlRIExecuteAsync', graph, b)
print(json.dumps([code('aclrtSynchronizeStream', b), 'the fault of SIM_CANN_FAULT' in text(), log]))
'''
        self.assertEqual(self.raw(text, SIM_CANN_FAULT='aclmdlRIExecuteAsync:1:fail'), [507015, True, []])

    def test_a_replay_on_memory_that_was_freed_is_an_error(self):
        text = '''
size, found = ctypes.c_size_t(8), []
for allocate, free in (('aclrtMalloc', 'aclrtFree'), ('aclrtMallocHost', 'aclrtFreeHost')):
    to = new('aclrtMalloc', size, 0)
    block = new(allocate, size, *([0] if allocate == 'aclrtMalloc' else []))
    graph, here = P(), stream()
    do('aclmdlRICaptureBegin', a, GLOBAL)
    assert copy('aclrtMemcpyAsync', to, block, a) == 0
    do('aclmdlRICaptureEnd', a, ctypes.byref(graph))
    do('aclmdlRIExecuteAsync', graph, here)
    do('aclrtSynchronizeStream', here)
    do(free, block)
    do('aclmdlRIExecuteAsync', graph, here)
    found.append((code('aclrtSynchronizeStream', here), text()))
print(json.dumps(found))
'''
        device, host = self.raw(text)
        self.assertEqual((device[0], host[0]), (507015, 507015))
        self.assertIn('aclrtMemcpyAsync: 8 bytes at offset', device[1])
        self.assertIn('aclrtMemcpyAsync: page-locked memory of a captured copy was freed', host[1])

    def test_what_a_capture_forbids_has_the_code_of_cann(self):
        text = '''
size, at, codes = ctypes.c_size_t(8), event(), {}
memory, pageable = new('aclrtMalloc', size, 0), ctypes.create_string_buffer(8)
status = ctypes.byref(ctypes.c_int())
do('aclmdlRICaptureBegin', a, GLOBAL)
do('aclrtRecordEvent', at, a)
codes['begin again'] = code('aclmdlRICaptureBegin', a, GLOBAL)
codes['synchronize the stream'] = code('aclrtSynchronizeStream', a)
codes['query the stream'] = code('aclrtStreamQuery', a, status)
codes['destroy the stream'] = code('aclrtDestroyStream', a)
codes['synchronize the device'] = code('aclrtSynchronizeDevice')
codes['synchronize another stream'] = code('aclrtSynchronizeStream', b)
codes['synchronize the event'] = code('aclrtSynchronizeEvent', at)
codes['query the event'] = code('aclrtQueryEventStatus', at, status)
codes['copy'] = copy('aclrtMemcpy', memory, pageable)
codes['set'] = code('aclrtMemset', memory, size, 0, size)
codes['copy pageable memory in the stream'] = copy('aclrtMemcpyAsync', memory, pageable, a)
codes['copy pageable memory in another stream'] = copy('aclrtMemcpyAsync', memory, pageable, b)
codes['allocate'] = code('aclrtMalloc', ctypes.byref(P()), size, 0)
mode = ctypes.c_int(RELAXED)
do('aclmdlRICaptureThreadExchangeMode', ctypes.byref(mode))
codes['copy, relaxed'] = copy('aclrtMemcpy', memory, pageable)
do('aclmdlRICaptureThreadExchangeMode', ctypes.byref(mode))
assert mode.value == RELAXED
codes['execute'], codes['destroy'] = code('aclmdlRIExecuteAsync', P(info(a)[1]), b), code('aclmdlRIDestroy', P(info(a)[1]))
codes['end'] = end(a)
print(json.dumps(codes))
'''
        self.assertEqual(self.raw(text), {
            'begin again': 107027, 'synchronize the stream': 107027, 'query the stream': 107027, 'destroy the stream': 107027, 'synchronize the device': 107027,
            'synchronize another stream': 0, 'synchronize the event': 107028, 'query the event': 107028, 'copy': 107030, 'set': 107030,
            'copy pageable memory in the stream': 107027, 'copy pageable memory in another stream': 107041, 'allocate': 0, 'copy, relaxed': 0,
            'execute': 107026, 'destroy': 107026, 'end': 0})

    def test_the_mode_says_which_threads_may_copy(self):
        text = '''
memory, pageable, found = new('aclrtMalloc', ctypes.c_size_t(8), 0), ctypes.create_string_buffer(8), []
def elsewhere(mode=None):
    def run():
        do('aclrtSetDevice', 0)
        if mode is not None: do('aclmdlRICaptureThreadExchangeMode', ctypes.byref(ctypes.c_int(mode)))
        out.append(copy('aclrtMemcpy', memory, pageable))
    out, thread = [], threading.Thread(target=run)
    thread.start()
    thread.join()
    return out[0]
for mode in (GLOBAL, THREAD, RELAXED):
    do('aclmdlRICaptureBegin', a, mode)
    found.append([copy('aclrtMemcpy', memory, pageable), elsewhere(), elsewhere(THREAD), elsewhere(RELAXED)])
    assert end(a) == 0
found.append(copy('aclrtMemcpy', memory, pageable))
print(json.dumps(found))
'''
        self.assertEqual(self.raw(text), [[107030, 107030, 0, 0], [107030, 0, 0, 0], [0, 0, 0, 0], 0])

    def test_a_wrong_use_of_captures_and_graphs_has_the_code_of_cann(self):
        text = '''
codes, at, before, graph = {}, event(), event(), P()
codes['default stream'] = code('aclmdlRICaptureBegin', None, GLOBAL)
codes['mode'] = code('aclmdlRICaptureBegin', a, 3)
codes['end without begin'] = end(a)
do('aclrtRecordEvent', before, a)

def begin(): do('aclmdlRICaptureBegin', a, GLOBAL)
def join():
    do('aclrtRecordEvent', at, a)
    do('aclrtStreamWaitEvent', b, at)
begin()
codes['event from before'] = code('aclrtStreamWaitEvent', a, before)
codes['which leaves it valid'] = end(a)
begin()
join()
codes['end in another stream'] = end(b)
codes['not joined'] = end(a)
assert info(b) == (0, None)
begin()
join()
do('aclrtRecordEvent', before, b)
codes['recorded, not waited for'] = end(a)
begin()
do('aclrtRecordEvent', at, a)
codes['the default stream waits'] = code('aclrtStreamWaitEvent', None, at)
assert info(a)[0] == 2
codes['which makes it invalid'] = end(a)
begin()
do('aclmdlRICaptureBegin', b, GLOBAL)
do('aclrtRecordEvent', at, a)
codes['another capture waits'] = code('aclrtStreamWaitEvent', b, at)
codes['which makes both invalid'] = [end(a), end(b)]
begin()
thread = threading.Thread(target=lambda: (do('aclrtSetDevice', 0), codes.update({'end in another thread': end(a)})))
thread.start()
thread.join()
begin()
do('aclmdlRICaptureEnd', a, ctypes.byref(graph))
begin()
codes['execute in a captured stream'] = code('aclmdlRIExecuteAsync', graph, a)
assert end(a) == 0
do('aclmdlRIDestroy', graph)
codes['execute nothing'] = code('aclmdlRIExecuteAsync', graph, a)
codes['destroy twice'] = code('aclmdlRIDestroy', graph)
codes['id of nothing'] = code('aclmdlRIGetId', graph, ctypes.byref(ctypes.c_uint32()))
codes['wait after the captures'] = code('aclrtStreamWaitEvent', c, at)
do('aclrtSynchronizeDevice')
codes['not played'] = code('aclmdlRICaptureTaskGrpBegin', a)
print(json.dumps(codes))
'''
        self.assertEqual(self.raw(text), {
            'default stream': 207000, 'mode': 107000, 'end without begin': 107029, 'event from before': 107024, 'which leaves it valid': 0,
            'end in another stream': 107036, 'not joined': 107025, 'recorded, not waited for': 107025, 'the default stream waits': 107031,
            'which makes it invalid': 507903, 'another capture waits': 107032, 'which makes both invalid': [507903, 507903], 'end in another thread': 107038,
            'execute in a captured stream': 107027, 'execute nothing': 107000, 'destroy twice': 107000, 'id of nothing': 107000,
            'wait after the captures': 0, 'not played': 207000})


if __name__ == '__main__':
    environment.main()
