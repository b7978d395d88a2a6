"""npu_tool serve: the page of report over HTTP, for one user of this machine."""
import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest
import urllib.parse
import urllib.request

import browser
from programs import BIN, FULL, ProgramTest, main, npu_tool, run_dir, train_app

DEVICE, DATA = 4, 3


class Server:
    """npu_tool serve; `url`, `port` and `token` are what it printed."""

    def __init__(self, *args):
        self.process = subprocess.Popen([str(BIN / 'npu_tool'), 'serve', *map(str, args), '--json'], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        printed = ''
        while (line := self.process.stdout.readline()):
            printed += line
            if line == '}\n': break
        document = json.loads(printed)
        self.url, self.port = document['url'], document['port']
        self.token = urllib.parse.parse_qs(urllib.parse.urlsplit(self.url).query)['token'][0]

    def end(self, number=signal.SIGKILL):
        if self.process.poll() is None: self.process.send_signal(number)
        self.process.stdout.close()
        return self.process.wait(60)

    def ask(self, path='/', method='GET', token=True, host=None, body=None):
        """(status, headers, body)."""
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=120)
        given = self.token if token is True else token
        target = path if given is None else f'{path}?token={urllib.parse.quote(given)}'
        connection.request(method, target, body=body, headers={} if host is None else {'Host': host})
        answer = connection.getresponse()
        out = answer.status, answer.headers, answer.read().decode()
        connection.close()
        return out

    def send(self, data):
        """A connection to which `data` was sent."""
        connection = socket.create_connection(('127.0.0.1', self.port), timeout=120)
        connection.sendall(data)
        return connection


def without_origin(page): return re.sub(r'<footer>.*</footer>', '', page, flags=re.S)


class OfARun(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.test = cls()
        ProgramTest.setUp(cls.test)
        cls.addClassCleanup(ProgramTest.tearDown, cls.test)
        config = cls.test.config(precision='32-true', workers=0)
        cls.test.assertDone(train_app(config, f'output.dir={cls.test.dir}/out', 'trainer.max_epochs=1'))
        cls.run_dir = run_dir(cls.test.dir / 'out')
        cls.server = Server(cls.run_dir)
        cls.addClassCleanup(lambda: cls.server.end())

    def copy(self):
        shutil.copytree(self.run_dir, self.dir / 'run', symlinks=True)
        return self.dir / 'run'

    def test_the_page_is_that_of_report(self):
        self.assertDone(npu_tool('report', self.run_dir, '--html', self.dir / 'report.html'))
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy of the environment may not know this machine
        with direct.open(self.server.url) as answer: page, headers = answer.read().decode(), answer.headers
        self.assertEqual(without_origin(page), without_origin((self.dir / 'report.html').read_text()))
        self.assertIn('<code>', page[page.index('<footer>'):])
        self.assertEqual((headers['Content-Type'], headers['Refresh']), ('text/html; charset=utf-8', '10'))
        self.assertEqual((headers['Referrer-Policy'], headers['Cache-Control'], headers['Connection']), ('no-referrer', 'no-store', 'close'))
        status, of_head, body = self.server.ask(method='HEAD')
        self.assertEqual((status, of_head['Content-Length'], body), (200, headers['Content-Length'], ''))

    def test_only_who_knows_the_token_gets_an_answer(self):
        token = self.server.token
        self.assertRegex(token, '^[0-9a-f]{48}$')
        wrong = (None, '', token[:-1], token + '0', token.upper(), '0' * 48, token[1:] + token[0])
        for given in wrong:
            for path in ('/', '/metrics.csv'):
                with self.subTest(token=given, path=path):
                    status, _, body = self.server.ask(path, token=given)
                    self.assertEqual((status, body), (403, 'the token is missing or wrong; use the address that npu_tool serve has printed\n'))
        self.assertNotIn(token, self.server.ask()[2])  # a page that is saved gives nothing away
        other = Server(self.run_dir)
        self.addCleanup(other.end)
        self.assertNotEqual(other.token, token)
        self.assertEqual(other.ask(token=token)[0], 403)

    def test_a_name_of_another_site_is_refused(self):
        for host in ('example.org', f'example.org:{self.server.port}', '127.0.0.1.example.org', 'localhost.', '127.0.0.1:x', '0.0.0.0', '[::1]', ''):
            with self.subTest(host=host):
                status, _, body = self.server.ask(host=host)
                self.assertIn(status, (400, 403), body)
                self.assertNotIn('<html', body)
        for host in ('localhost', f'localhost:{self.server.port}', '127.0.0.1', 'LOCALHOST:8080'): self.assertEqual(self.server.ask(host=host)[0], 200, host)
        with self.server.send(f'GET /?token={self.server.token} HTTP/1.1\r\n\r\n'.encode()) as without:
            self.assertRegex(without.makefile('rb').readline(), rb'^HTTP/1\.1 40[03] ')

    def test_it_only_reads_and_has_one_page(self):
        for method in ('POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'TRACE', 'get'):
            with self.subTest(method=method):
                status, headers, _ = self.server.ask(method=method, body=b'x' * 100 if method in ('POST', 'PUT') else None)
                self.assertEqual((status, headers['Allow']), (405, 'GET, HEAD'))
        for path in ('/metrics.csv', '/config.yaml', '/../config.yaml', '/%2e%2e/config.yaml', '//etc/passwd', '/../../../../../../etc/passwd', '/..%2f..%2fetc/passwd', '/.'):
            with self.subTest(path=path):
                status, _, body = self.server.ask(path)
                self.assertEqual((status, body), (404, 'there is one page only: /\n'))

    def test_it_listens_on_this_machine_only(self):
        with open('/proc/net/tcp') as table: rows = [line.split() for line in table][1:]
        listening = [row[1] for row in rows if row[3] == '0A' and row[1].endswith(f':{self.server.port:04X}')]
        self.assertEqual(listening, [f'0100007F:{self.server.port:04X}'])

    def test_large_requests_end_without_harm(self):
        token = f'/?token={self.server.token}'
        for request in (f'GET {token}&x={"a" * 100_000} HTTP/1.1\r\nHost: localhost\r\n\r\n', f'GET {token} HTTP/1.1\r\nHost: localhost\r\nX: {"a" * 100_000}\r\n\r\n',
                        f'GET {token} HTTP/1.1\r\nHost: localhost\r\n' + ''.join(f'X-{i}: {i}\r\n' for i in range(5000)) + '\r\n', 'A' * 100_000, '\0\xff\r\n\r\n' * 1000):
            with self.subTest(request=request[:20]), socket.create_connection(('127.0.0.1', self.server.port), timeout=120) as connection:
                answer = b''
                try:
                    connection.sendall(request.encode('latin-1'))
                    while (part := connection.recv(4096)): answer += part
                except (ConnectionResetError, BrokenPipeError): pass  # the server stops reading
                self.assertTrue(answer == b'' or re.match(rb'HTTP/1\.[01] 4\d\d ', answer), answer[:100])
        self.assertEqual(self.server.ask()[0], 200)

    def test_slow_clients_keep_nobody_waiting(self):
        """Also more clients than may be connected at a time: each has a few seconds for its request, however slowly it sends it."""
        count = 80 if FULL else 40
        slow = [self.server.send((b'', b'GET', b'GET / HTTP/1.1\r\nHost: localhost\r\nX:')[i % 3]) for i in range(count)]
        try:
            self.assertEqual(self.server.ask()[0], 200)
            if FULL:
                for connection in slow: self.assertEqual(connection.recv(1), b'')  # ended by the server
        finally:
            for connection in slow: connection.close()

    def test_the_page_follows_the_run(self):
        run = self.copy()
        server = Server(run, '--refresh', 0)
        self.addCleanup(server.end)
        status, headers, page = server.ask()
        self.assertEqual((status, headers['Refresh']), (200, None))
        self.assertNotIn('own_value', page)
        rows = (run / 'metrics.csv').read_text().splitlines()
        (run / 'metrics.csv').write_text('\n'.join([rows[0] + ',own_value'] + [row + ',' for row in rows[1:]] + ['0,20,log' + ',' * (rows[0].count(',') - 2) + ',7']) + '\n')
        deadline = time.monotonic() + 120
        while 'own_value' not in page and time.monotonic() < deadline: page = server.ask()[2]
        self.assertIn('own_value', page)
        good = (run / 'metrics.csv').read_text()
        (run / 'metrics.csv').write_text('no header\n')
        while (answer := server.ask())[0] == 200 and time.monotonic() < deadline: pass
        self.assertEqual((answer[0], answer[1]['Content-Type']), (503, 'text/plain; charset=utf-8'))
        self.assertIn('metrics.csv', answer[2])
        (run / 'metrics.csv').write_text(good)
        while (answer := server.ask())[0] != 200 and time.monotonic() < deadline: pass
        self.assertIn('own_value', answer[2])

    def test_errors_at_the_start(self):
        with socket.create_server(('127.0.0.1', 0)) as taken:
            port = taken.getsockname()[1]
            self.assertFails(npu_tool('serve', self.run_dir, '--port', port), DEVICE, f'port {port} of 127.0.0.1 is in use by another program; hint: choose another one with --port')
        self.assertFails(npu_tool('serve', self.dir), DATA, 'not the folder of a run')
        self.assertFails(npu_tool('serve', self.run_dir, '--port', 65536), 2, '--port')
        self.assertFails(npu_tool('serve', self.run_dir, '--refresh', -1), 2, '--refresh')

    def test_a_signal_ends_it(self):
        port = self.reserved_port()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):  # after each signal, the port is free at once
            server = Server(self.run_dir, '--port', port)
            self.addCleanup(server.end)
            self.assertEqual((server.port, server.ask()[0]), (port, 200))
            with server.send(b'GET'): self.assertEqual(server.end(number), 128 + number)

    @unittest.skipUnless(browser.find(), 'no Chromium or Chrome here')
    def test_a_browser_shows_it_and_loads_it_again(self):
        run = self.copy()
        server = Server(run, '--refresh', 1)
        self.addCleanup(server.end)
        page = browser.shared()
        deadline = time.monotonic() + 120

        def true(expression):
            """Whether the expression becomes true. A page that is being loaded again cannot evaluate it."""
            while time.monotonic() < deadline:
                try:
                    if page.run(expression): return True
                except RuntimeError: pass
                time.sleep(0.1)
            return False
        page.open(server.url)
        self.assertTrue(true(f'document.querySelector("h1").textContent === {json.dumps(f"Run {run}")}'))
        self.assertTrue(true('document.querySelectorAll("figure").length > 1'))
        config = run / 'config.yaml'
        config.write_text(config.read_text().replace('seed: 7', 'seed: 4321'))
        self.assertTrue(true('document.body.textContent.includes("4321")'))
        self.assertEqual(page.problems, [])
        self.assertEqual(set(page.requests) - {'data:,'}, {server.url})


if __name__ == '__main__': main()
