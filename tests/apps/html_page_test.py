"""Pages of reports in a browser: they cause no errors, load no other files and do not overflow, and their tables sort and filter."""
import json
import os
import pathlib
import tempfile
import unittest

import browser
from images import png
from programs import BIN, ProgramTest, main, npu_tool, run, run_dir, train_app

BUILD = pathlib.Path(os.environ['NPU_TRAIN_BIN']).parent
WIDTHS = (1280, 800, 400)
WIDE = 'document.documentElement.scrollWidth'
# Returns the visible cells in a column of a table.
COLUMN = '''[...document.querySelectorAll('table')[{table}].rows].slice(1).filter(row => row.getClientRects().length)
            .map(row => row.cells[{column}].textContent)'''
# Finds text in plots that is too small to read or outside the page.
BAD_TEXT = '''[...document.querySelectorAll('.axes text')].filter(t => { const r = t.getBoundingClientRect();
              return r.height < 11 || r.left < 0 || r.right > innerWidth + 0.5; }).map(t => t.textContent)'''
# Finds content that is cut off: wider than its box, without a visible scrollbar or a line break that shows the rest.
CUT = '''[...document.querySelectorAll('main *')].filter(e => {
           if (e.closest('svg') || e.scrollWidth <= e.clientWidth + 1 || !e.clientWidth) return false;
           const flow = getComputedStyle(e).overflowX;
           if (flow === 'visible') return e.getBoundingClientRect().left + e.scrollWidth > document.documentElement.clientWidth + 1 &&
                                          !e.closest('.scroll');
           return flow === 'hidden' || flow === 'clip' || innerWidth <= 800 || e.offsetHeight - e.clientHeight < 8;
         }).map(e => e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 60))'''
# Finds words of facts, such as names of paths, that continue on another line although one line has room for them.
BROKEN = r'''[...document.querySelectorAll('.facts dd')].flatMap(dd => [...dd.childNodes].filter(n => n.nodeType === 3).flatMap(n =>
              [...n.data.matchAll(/[^\/_.\-\s]+/g)].filter(m => { const r = document.createRange(); r.setStart(n, m.index);
              r.setEnd(n, m.index + m[0].length); const rects = [...r.getClientRects()]; return rects.length > 1 &&
              rects.reduce((sum, rect) => sum + rect.width, 0) <= dd.clientWidth; }).map(m => m[0])))'''
# Finds tables of at most a hundred rows that hide some behind a scrollbar of their own.
HIDDEN_ROWS = '''[...document.querySelectorAll('.scroll')].filter(e => e.querySelectorAll('tbody tr').length <= 100 && e.scrollHeight > e.clientHeight + 1)
                .map(e => e.textContent.slice(0, 60))'''
# Scrolls to an element, and returns its centre and its size.
PLACE = '''(() => {{ const e = document.querySelectorAll('{selector}')[{index}]; e.scrollIntoView({{block: 'center', inline: 'center'}});
          const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2, r.width, r.height]; }})()'''


def place(page, selector, index=0): return page.run(PLACE.format(selector=selector, index=index))


def column(page, table, column): return page.run(COLUMN.format(table=table, column=column))


def check_page(test, page, path):
    """Checks the requirements of every page, whatever its content. Leaves it open with a width of 1280."""
    for width, dark in ((400, False), (800, False), (1280, False), (400, True)):  # dark pages differ only in colours
        page.open(path, width, dark=dark)
        test.assertLessEqual(page.run(WIDE), page.run('document.documentElement.clientWidth'), f'overflows at {width}')
        test.assertEqual(page.run(BAD_TEXT), [], f'too small to read, or outside the page, at {width}')
        test.assertEqual(page.run(CUT), [], f'cut at {width}')
        test.assertEqual(page.run(BROKEN), [], f'broken inside a word at {width}')
        test.assertEqual(page.run(HIDDEN_ROWS), [], f'rows are hidden at {width}')
        test.assertEqual(page.requests, [pathlib.Path(path).resolve().as_uri()])
        test.assertEqual(page.problems, [])
    for index in range(page.run('document.querySelectorAll("th button").length')):
        page.run(f'document.querySelectorAll("th button")[{index}].click()')
    for index in range(page.run('document.querySelectorAll(".area").length')):
        page.move(*place(page, '.area', index)[:2])
        test.assertEqual(page.run(f'document.querySelectorAll(".area")[{index}].querySelectorAll(".tip").length'), 1)
    test.assertEqual(page.problems, [])
    test.assertEqual(page.run("""document.querySelectorAll('img:not([src^="data:image/"]), main script, main style, iframe, object').length"""), 0)
    test.assertEqual(page.run('[...document.images].filter(image => !image.complete || !image.naturalWidth).length'), 0)  # each one can be decoded
    page.open(path)


@unittest.skipUnless(browser.find(), 'no Chromium or Chrome here')
class HtmlPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        code, out, err = run(BUILD / 'tests/test_report', '--test-case=a sample page')
        if code: raise RuntimeError(out + err)
        cls.path = BUILD / 'tests/report_sample.html'
        cls.page = browser.Browser()
        cls.addClassCleanup(cls.page.close)

    def setUp(self): self.page.open(self.path)

    def tearDown(self): self.assertEqual(self.page.problems, [])

    def test_the_sample_page(self): check_page(self, self.page, self.path)

    def test_a_click_on_a_header_sorts(self):
        """By value, not by text: nan, inf, then the largest numbers. A second click reverses the order; a third restores that of the file."""
        def click(): self.page.click(*place(self.page, 'th', 2)[:2])
        def state(): return self.page.run('document.querySelectorAll("th")[2].getAttribute("aria-sort")')
        before = column(self.page, 0, 2)
        click()
        self.assertEqual(state(), 'descending')
        falling = column(self.page, 0, 2)
        self.assertEqual(falling[:2], ['nan', 'inf'])
        self.assertEqual(sorted(map(float, falling[2:]), reverse=True), list(map(float, falling[2:])))
        click()
        self.assertEqual(state(), 'ascending')
        self.assertEqual(column(self.page, 0, 2), falling[::-1])
        click()
        self.assertIsNone(state())
        self.assertEqual(column(self.page, 0, 2), before)

    def test_the_keyboard_sorts_text_as_people_count(self):
        place(self.page, 'th', 1)
        self.page.run('document.querySelectorAll("th button")[1].focus()')
        self.page.press('Enter')
        self.assertEqual(self.page.run('document.querySelectorAll("th")[1].getAttribute("aria-sort")'), 'ascending')
        names = column(self.page, 0, 1)
        self.assertLess(names.index('layer2.0.conv1'), names.index('layer8.0.conv1'))
        self.page.run('''document.querySelectorAll('section.table')[2].querySelectorAll('th button')[1].click()''')
        self.page.run('document.querySelector(".all").click()')
        names = column(self.page, 2, 1)
        self.assertLess(names.index('layer9.0.conv1'), names.index('layer10.0.conv1'))

    def test_a_filter(self):
        x, y, *_ = place(self.page, 'input')
        self.page.click(x, y)
        for letter in 'LAYER3.0': self.page.press(letter)
        self.assertEqual(column(self.page, 0, 1), ['layer3.0.conv1', 'layer3.0.conv2'])
        self.assertEqual(self.page.run('document.querySelector(".count").textContent'), '2 matching of 48 rows')
        for letter in ' none': self.page.press(letter)
        self.assertEqual(column(self.page, 0, 1), [])

    def test_pictures_of_a_group(self):
        visible = '[...document.querySelectorAll(".item")].filter(item => item.getClientRects().length).map(item => item.dataset.g)'
        count = 'document.querySelector(".gallery .count").textContent'
        def choose(group):
            self.page.run(f"(() => {{ const e = document.querySelector('.gallery select'); e.value = '{group}'; e.dispatchEvent(new Event('change')); }})()")
        self.assertEqual(self.page.run(count), '22 images')
        choose('cat')
        self.assertEqual(self.page.run(visible), ['cat'] * 7)
        self.assertEqual(self.page.run(count), '7 of 22 images')
        x, y, *_ = place(self.page, '.gallery input')
        self.page.click(x, y)
        for letter in 'IMAGE_1': self.page.press(letter)
        self.assertEqual(self.page.run(visible), ['cat'] * 3)  # 12, 15, 18
        choose('')
        self.assertEqual(self.page.run(count), '11 of 22 images')

    def test_pictures_are_readable_at_every_width_and_on_paper(self):
        sizes = '[...document.querySelectorAll(".item img")].map(image => [image.getBoundingClientRect().width, image.getBoundingClientRect().height])'
        for width in WIDTHS:
            self.page.open(self.path, width)
            for w, h in self.page.run(sizes):
                self.assertAlmostEqual(w, h, delta=0.5)  # the images of the files are square
                self.assertGreaterEqual(w, 90)
        self.page.call('Emulation.setEmulatedMedia', media='print')
        self.addCleanup(self.page.call, 'Emulation.setEmulatedMedia', media='')
        self.assertEqual(self.page.run('document.querySelector(".gallery .tools").getClientRects().length'), 0)
        self.assertEqual(self.page.run('[...document.querySelectorAll(".item img")].filter(image => image.getClientRects().length).length'), 25)

    def test_long_tables_show_the_first_rows_until_asked(self):
        count = 'document.querySelectorAll(".count")[1].textContent'
        self.assertEqual(len(column(self.page, 2, 0)), 200)
        self.assertEqual(self.page.run(count), 'first 200 of 5,000 rows')
        self.page.run('''document.querySelectorAll('section.table')[2].querySelector('th button').click()''')
        self.assertEqual(column(self.page, 2, 0)[0], '4,999')  # all rows are sorted before the first 200 are selected
        self.page.click(*place(self.page, '.all')[:2])
        self.assertEqual(len(column(self.page, 2, 0)), 5000)
        self.assertEqual(self.page.run(count), '5,000 rows')
        self.assertTrue(self.page.run('document.querySelector(".all").hidden'))

    def test_the_pointer_shows_the_nearest_point(self):
        for width in WIDTHS:
            self.page.open(self.path, width)
            x, y, w, h = place(self.page, '.data')
            self.page.move(x + w / 2 - 1, y)  # points at the last of 48 calls
            text = self.page.run('document.querySelector(".tip").textContent')
            self.assertRegex(text, r'^(forward|backward)layer8\.2\.conv2 · call 47: \d')
            middle, _, w, _ = place(self.page, '.tip')
            self.assertTrue(0 <= middle - w / 2 < middle + w / 2 <= width, (middle, w))
            self.assertLessEqual(self.page.run(WIDE), width)
            self.page.move(1, 1)
            self.assertIsNone(self.page.run('document.querySelector(".tip")'))

    def test_text_has_contrast(self):
        """4.5 to 1 for text, 3 to 1 for curves (WCAG 2.2, 1.4.3 and 1.4.11), in both schemes."""
        pairs = [('accent', 'card'), *((f's{i}', 'card') for i in range(8)),
                 *((t, b) for t in ('text', 'muted') for b in ('page', 'card', 'hover')),
                 *((t, b) for t in ('good', 'warn', 'bad') for b in ('page', 'card', f'{t}-tint'))]

        def luminance(color):
            parts = [int(color[i:i + 2], 16) / 255 for i in (1, 3, 5)]
            return sum(f * (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4) for f, c in zip((0.2126, 0.7152, 0.0722), parts))

        for dark in (False, True):
            self.page.open(self.path, dark=dark)
            for pair in pairs:
                colors = (f'getComputedStyle(document.documentElement).getPropertyValue("--{name}").trim()' for name in pair)
                low, high = sorted(luminance(self.page.run(color)) for color in colors)
                self.assertGreaterEqual((high + 0.05) / (low + 0.05), 3 if pair[0][0] == 's' else 4.5, (pair, dark))


@unittest.skipUnless(browser.find(), 'no Chromium or Chrome here')
class EveryPage(ProgramTest):
    """Checks each command that writes a page, with the results of a small model."""

    def check(self, path, *words, verdict=True):
        page = browser.shared()
        check_page(self, page, path)
        if os.environ.get('NPU_TRAIN_SCREENSHOTS'):  # folder for pictures that a developer can look at
            for width in WIDTHS:
                page.open(path, width)
                page.screenshot(pathlib.Path(os.environ['NPU_TRAIN_SCREENSHOTS']) / f'{path.stem}_{width}.png')
        footer = page.run('document.querySelector("footer").innerText')
        self.assertRegex(footer, r'npu_train \d+\.\d+\.\d+ · \d{4}-\d\d-\d\d \d\d:\d\d UTC')
        for word in words: self.assertIn(word, footer)
        if verdict:  # directly below the title is one sentence
            first = page.run('document.querySelector("h1").nextElementSibling.tagName + document.querySelector("h1 + p").innerText')
            self.assertRegex(first, r'(?s)^P[A-Z0-9].*\.$')

    def check_page_of(self, name, *args, codes=(0, ), verdict=True):
        path = self.dir / f'{name}.html'
        code, out, err = run(BIN / 'npu_tool', *args, '--html', path)  # a process of its own, since the page names its command
        self.assertIn(code, codes, out + err)
        self.check(path, 'npu_tool ' + str(args[0]), f'--html {path}', verdict=verdict)
        return path.read_text()

    def test_memory(self):
        text = self.check_page_of('memory', 'memory', self.config(precision='32-true'), 'model.depth=6', '--hbm', '1GiB')
        self.assertIn('<ol class="rows', text)  # has bars with the names of layers
        self.assertNotIn('class="series', text.split('Activations kept', 1)[1].split('</figure>', 1)[0])

    def test_analyze(self): self.check_page_of('analyze', 'analyze', self.config(precision='32-true'), codes=(0, 7))

    def test_scan(self):
        (self.dir / 'project').mkdir()
        (self.dir / 'project' / 'train.py').write_text('import torch\nimport apex\nx = torch.ones(3).cuda()\n' * 5)
        self.check_page_of('scan', 'analyze', '--source', self.dir / 'project', codes=(0, 7))

    def test_doctor(self): self.check_page_of('doctor', 'doctor', '--no-hello', '--output', self.dir, codes=(0, 7))

    def test_checklist(self):
        text = self.check_page_of('checklist', 'checklist', self.config(precision='32-true'), '--device', 'sim_npu', codes=(0, 7))
        self.assertRegex(text, r'<td>not checked</td><td[^>]*>the machine is set up</td>')
        self.assertNotIn('class="note good"', text)

    def test_bench(self):
        config, small = self.config(precision='32-true'), ('--steps', '3', '--warmup', '1', '--infer-steps', '2', '--sweep-steps', '2')
        what = ('--batch', '2', *small, '--no-machine', '--scale-batch', '1,2', '--scale-steps', '2')
        before = self.dir / 'before.json'
        self.assertDone(npu_tool('bench', config, '--what', 'step', *what, '--out', before))
        self.check_page_of('bench', 'bench', config, '--what', 'step,train,infer,batch,loader', *what, '--history', before)

    def test_baseline(self):
        config, file = self.config(precision='32-true'), self.dir / 'b.json'
        short = ('trainer.max_epochs=1', 'output.dir=""')
        self.assertDone(npu_tool('baseline', config, *short, '--out', file))
        self.check_page_of('baseline', 'baseline', config, *short, '--against', file, '--least-speed', '0.01', codes=(0, 7))

    def test_profile(self):
        self.assertDone(run(BIN / 'train_app', self.config(precision='32-true'), 'trainer.max_epochs=1', 'trainer.profiler=chrome', f'output.dir={self.dir}/out'))
        self.check(run_dir(self.dir / 'out') / 'profile' / 'profile.html', 'train_app ', 'trainer.profiler=chrome')

    def test_comparisons(self):
        config = self.config(precision='32-true')
        for name, lr in (('a', 0.002), ('b', 0.02)):
            self.assertDone(train_app(config, 'trainer.max_epochs=1', 'trainer.max_steps=4', f'optimizer.lr={lr}', f'output.dir={self.dir}/{name}',
                                      f'dump.dir={self.dir}/dump_{name}', 'dump.task=statistics'))
        self.check_page_of('dumps', 'compare', self.dir / 'dump_a', self.dir / 'dump_b', codes=(0, 7), verdict=False)
        self.check_page_of('runs', 'compare', run_dir(self.dir / 'a'), run_dir(self.dir / 'b'), codes=(0, 7), verdict=False)
        self.check_page_of('report', 'report', run_dir(self.dir / 'a'))
        self.check_page_of('eval', 'eval', '--checkpoint', run_dir(self.dir / 'a'))
        self.check_page_of('reports', 'report', run_dir(self.dir / 'a'), run_dir(self.dir / 'b'), verdict=False)


    def test_images(self):
        folder = self.dir / 'images'
        for i in range(24):
            (folder / 'abc'[i % 3]).mkdir(parents=True, exist_ok=True)
            png(folder / 'abc'[i % 3] / f'an_image_with_a_rather_long_name_{i}.png', 32, (10 * i, 90, 200))
        (folder / 'a' / 'broken.png').write_bytes(b'no image')
        config = self.config(precision='32-true')
        self.assertDone(train_app(config, 'trainer.max_steps=1', f'output.dir={self.dir}/out'))
        text = self.check_page_of('predict', 'predict', '--checkpoint', run_dir(self.dir / 'out'), folder, codes=(3, ))
        self.assertIn('broken.png', text)
        self.check_page_of('stats', 'data', 'stats', folder, codes=(3, ))
        self.check_page_of('show', 'data', 'show', config, 'data.mixup_alpha=0.3', '--images', '10')

    def test_two_histories_with_few_common_steps(self):
        """Long paths, and 2 of 29 steps: the page begins with what that means."""
        paths = [self.dir / name / 'version_0/metrics.csv' for name in ('run_on_the_npu_with_a_rather_long_name', 'another_long_name_of_the_gpu_baseline')]
        for path, steps in zip(paths, (range(16), range(14, 29))):
            path.parent.mkdir(parents=True)
            path.write_text('step,loss\n' + ''.join(f'{i},{2.3 - 0.01 * i}\n' for i in steps))
        self.check_page_of('few', 'compare', *paths, verdict=False)
        text = (self.dir / 'few.html').read_text()
        self.assertIn('<p class="note warn">only 2 of 29 steps are in both histories, and nothing is known of the others: ', text)

    def test_dumps_with_few_common_steps_have_one_note_of_a_kind(self):
        config = self.config(precision='32-true')
        for name, steps in (('a', '4'), ('b', '1')):
            self.assertDone(train_app(config, 'trainer.max_epochs=1', f'trainer.max_steps={steps}', 'output.dir=""', f'dump.dir={self.dir}/{name}'))
        self.check_page_of('one', 'compare', self.dir / 'a', self.dir / 'b', verdict=False)
        text = (self.dir / 'one.html').read_text()
        self.assertIn('<p class="note warn">Only 1 of 4 steps is in both dumps, and nothing is known of the others. The common part', text)
        code, out, _ = npu_tool('compare', self.dir / 'a', self.dir / 'a', '--layers', 'head', '--json')
        self.assertEqual(code, 0)
        notes = [note for note in json.loads(out)['notes'] if 'excluded by' in note]
        self.assertEqual(len(notes), 1)
        self.assertRegex(notes[0], r'^steps 0 to 3: \d+ calls excluded by')


class CheckItself(unittest.TestCase):
    @unittest.skipUnless(browser.find(), 'no Chromium or Chrome here')
    def test_mistakes_are_seen(self):
        sound = '<!doctype html><link rel="icon" href="data:,"><main>good</main>'
        mistakes = {'wide': (sound + '<div style="width:600px">x</div>', 'overflows at 400'),
                    'hides': (sound + '<main><div style="overflow:hidden;width:99px"><div style="width:2000px">x</div></div></main>', 'cut at 400'),
                    'throws': (sound + '<script>missing()</script>', 'ReferenceError'),
                    'logs': (sound + '<script>console.error("told")</script>', 'told'),
                    'fetches': (sound + '<script src="absent.js"></script>', 'absent.js'),
                    'breaks': (sound + '<dl class="facts"><dd style="width:120px;word-break:break-all">a_path/withaverylong</dd></dl>', 'broken inside'),
                    'scrolls': (sound + '<div class="scroll" style="height:40px;overflow:auto"><table><tbody>' + '<tr><td>x</td></tr>' * 9 + '</table></div>',
                                'rows are hidden'),
                    'tiny': (sound + '<svg class="axes"><text y="20" font-size="7">12</text></svg>', 'too small'),
                    'late': (sound + '<table><tr><th><button onclick="missing()">x</button></table>', 'ReferenceError')}
        page = browser.shared()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'a.html'
            path.write_text(sound)
            check_page(self, page, path)
            for name, (text, part) in mistakes.items():
                path.write_text(text)
                with self.subTest(name):
                    with self.assertRaises(AssertionError) as caught: check_page(self, page, path)
                    self.assertIn(part, str(caught.exception))


if __name__ == '__main__': main()
