"""A headless Chromium, controlled through the pipe of its DevTools protocol (https://chromedevtools.github.io/devtools-protocol) with only
the standard library."""
import atexit
import base64
import functools
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable')


def find():
    """The path of the browser, or None if none is installed."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


@functools.cache
def shared():
    """A browser for all pages of a driver. It is closed when the driver ends."""
    browser = Browser()
    atexit.register(browser.close)
    return browser


class Browser:
    """One process with one page: `with Browser() as browser: browser.open(path)`."""

    def __init__(self, timeout=120):
        self.timeout = timeout
        self.problems = []  # errors, warnings and exceptions since the page was opened
        self.requests = []  # addresses that the page has requested
        self._received, self._number, self._session = b'', 0, None
        self._profile = tempfile.TemporaryDirectory(prefix='npu_train_browser_', ignore_cleanup_errors=True)
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        # The browser reads from descriptor 3 and writes to 4. The pipes may have these numbers themselves, so a shell moves them.
        command = [find(), '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
                   '--remote-debugging-pipe', f'--user-data-dir={self._profile.name}', 'about:blank']
        # Needs bash, because other shells support only descriptors of one digit, and the pipes may have more.
        move = f'exec 100<&{commands} 101>&{answers}; exec 3<&100 4>&101 100<&- 101>&-; exec "$@"'
        shell = ['bash', '-c', move, 'bash', *command]
        self._process = subprocess.Popen(shell, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                         pass_fds=(commands, answers), start_new_session=True)
        os.close(commands)
        os.close(answers)
        try:
            target = self.call('Target.createTarget', url='about:blank')['targetId']
            self._session = self.call('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
            for domain in ('Page', 'Runtime', 'Log', 'Network'): self.call(domain + '.enable')
        except BaseException:
            self.close()
            raise

    def __enter__(self): return self

    def __exit__(self, *_): self.close()

    def close(self):
        self._session = None
        try: self.call('Browser.close')
        except (OSError, RuntimeError): pass
        try: self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()

    def call(self, method, **params):
        """Sends a command and returns its result. Events of the page that arrive meanwhile are kept."""
        self._number += 1
        message = {'id': self._number, 'method': method, 'params': params}
        if self._session: message['sessionId'] = self._session
        data = json.dumps(message).encode() + b'\0'
        while data: data = data[os.write(self._to, data):]
        while True:
            answer = self._next()
            if answer.get('id') != self._number: continue
            if 'error' in answer: raise RuntimeError(f'{method}: {answer["error"]}')
            return answer['result']

    def _next(self):
        deadline = time.monotonic() + self.timeout
        while b'\0' not in self._received:
            if not select.select([self._from], [], [], max(0, deadline - time.monotonic()))[0]:
                raise RuntimeError(f'the browser did not answer within {self.timeout} s')
            part = os.read(self._from, 1 << 16)
            if not part: raise RuntimeError('the browser has exited')
            self._received += part
        text, _, self._received = self._received.partition(b'\0')
        message = json.loads(text)
        self._keep(message.get('method'), message.get('params', {}))
        return message

    def _keep(self, method, params):
        if method == 'Runtime.exceptionThrown':
            details = params['exceptionDetails']
            self.problems.append(details.get('exception', {}).get('description', details['text']))
        elif method == 'Runtime.consoleAPICalled' and params['type'] in ('error', 'warning', 'assert'):
            self.problems.append(' '.join(str(a.get('value', a.get('description'))) for a in params['args']))
        elif method == 'Log.entryAdded' and params['entry']['level'] in ('error', 'warning'):
            self.problems.append(params['entry']['text'])
        elif method == 'Page.javascriptDialogOpening':
            self.problems.append('a dialog: ' + params['message'])
        elif method == 'Network.requestWillBeSent':
            if not params['request']['url'].startswith('data:'): self.requests.append(params['request']['url'])  # a part of the page

    def open(self, path, width=1280, height=900, dark=False):
        """Opens a file, or an address that begins with http:, in a window of this size and waits until it is loaded completely."""
        self.problems.clear()
        self.requests.clear()
        self.resize(width, height)
        self.call('Emulation.setEmulatedMedia', features=[{'name': 'prefers-color-scheme', 'value': 'dark' if dark else 'light'}])
        url = path if str(path).startswith('http:') else pathlib.Path(path).resolve().as_uri()
        answer = self.call('Page.navigate', url=url)
        if 'errorText' in answer: raise RuntimeError(f'{path}: {answer["errorText"]}')
        deadline = time.monotonic() + self.timeout
        while self.run('document.readyState + location.protocol') != 'complete' + url[:url.index(':') + 1]:
            if time.monotonic() > deadline: raise RuntimeError(f'{path} was not loaded within {self.timeout} s')
            time.sleep(0.02)

    def resize(self, width, height=900):
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1, mobile=False)

    def run(self, expression):
        """The value of a JavaScript expression; promises are waited for."""
        answer = self.call('Runtime.evaluate', expression=expression, returnByValue=True, awaitPromise=True)
        if 'exceptionDetails' in answer: raise RuntimeError(f'{expression}: {answer["exceptionDetails"]}')
        return answer['result'].get('value')

    def click(self, x, y):
        for kind in ('mousePressed', 'mouseReleased'):
            self.call('Input.dispatchMouseEvent', type=kind, x=x, y=y, button='left', clickCount=1)

    def move(self, x, y): self.call('Input.dispatchMouseEvent', type='mouseMoved', x=x, y=y)

    def press(self, key):
        """Presses a key that types one character, such as 'a', or 'Enter'."""
        text = '\r' if key == 'Enter' else key
        self.call('Input.dispatchKeyEvent', type='keyDown', key=key, text=text)
        self.call('Input.dispatchKeyEvent', type='keyUp', key=key)

    def screenshot(self, path, whole=True):
        data = self.call('Page.captureScreenshot', captureBeyondViewport=whole)['data']
        pathlib.Path(path).write_bytes(base64.b64decode(data))
