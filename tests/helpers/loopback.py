"""A web server of the tests' own, on the loopback interface only."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """Answers each path with the next of its prepared replies; the last one stays."""

    def __init__(self) -> None:
        self.replies: dict[str, list[object]] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                queue = outer.replies.get(self.path, [404])
                reply = queue.pop(0) if len(queue) > 1 else queue[0]
                if isinstance(reply, int):
                    self.send_error(reply)
                    return
                assert isinstance(reply, (bytes, tuple))
                body, promised = reply if isinstance(reply, tuple) else (reply, len(reply))
                self.send_response(200)
                self.send_header("Content-Length", str(promised))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()
