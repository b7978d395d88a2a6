"""Scripts in one Python that has imported their packages, for peers.py: python_peer.py IMPORTS

IMPORTS is a JSON document of statements by name. The first line of output names those that succeeded. Then each line of standard input is a JSON list
[folder, argument, ...] of one script, which runs there in a fork of this process, as `python argument ...` would; the answer is a line with its
exit code, output and errors."""
import json
import os
import runpy
import sys
import tempfile
import traceback


def become(script, folder, out, error):
    """Makes this process go on as the script. Returns its exit code."""
    os.chdir(folder)
    with open(os.devnull) as nothing:
        for file, number in ((nothing, 0), (out, 1), (error, 2)): os.dup2(file.fileno(), number)
    sys.argv = script[1:] if script[0] == '-m' else script
    sys.path[0] = os.path.dirname(os.path.abspath(script[0]))
    try:
        if script[0] == '-m': runpy.run_module(script[1], run_name='__main__', alter_sys=True)
        else: runpy.run_path(script[0], run_name='__main__')
        return 0
    except SystemExit as e:
        if isinstance(e.code, str): print(e.code, file=sys.stderr)
        return e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1


def main():
    answers = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)
    found = []
    for name, statement in json.loads(sys.argv[1]).items():
        try: exec(statement, {})
        except Exception as e: print(f'{name}: {type(e).__name__}: {e}', file=sys.stderr)
        else: found.append(name)
    print(json.dumps(found), file=answers, flush=True)
    for line in sys.stdin:
        folder, *script = json.loads(line)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                code = become(script, folder, out, error)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)  # a regular end would take a second to free all imports
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said = [file.seek(0) or file.read().decode(errors='replace') for file in (out, error)]
        print(json.dumps([code, *said]), file=answers, flush=True)


main()
