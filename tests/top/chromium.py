"""
Chromium without a window, as Qt has it (PySide6-WebEngine): loads a page and does what it is told by lines on stdin.

    python chromium.py ADDRESS

A line is an expression in JavaScript, and is answered by its value as a line of JSON, once that is true; "picture FILE"
takes one. What the page says on its console goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys

os.environ |= {
    "QT_QPA_PLATFORM": "offscreen",
    "QTWEBENGINE_DISABLE_SANDBOX": "1",  # root has none
    "QTWEBENGINE_CHROMIUM_FLAGS": "--disable-gpu --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run",
}

from PySide6.QtCore import QTimer, QUrl
from PySide6.QtWebEngineCore import QWebEnginePage
from PySide6.QtWebEngineWidgets import QWebEngineView
from PySide6.QtWidgets import QApplication


class Page(QWebEnginePage):
    """A page whose console is heard."""

    def javaScriptConsoleMessage(self, level, text, line, _):  # noqa: N802  # Qt's name
        print(f"console: {line}: {text}", file=sys.stderr, flush=True)


class Steps:
    """What is to be done, line by line."""

    def __init__(self, view):
        self._view = view

    def go_on(self, *_):
        line = sys.stdin.readline().rstrip("\n")
        if not line:
            QApplication.exit(0)
        elif line.startswith("picture "):
            self._view.grab().save(line.removeprefix("picture "))
            self.say(True)
        else:
            self.ask(line)

    def ask(self, line):
        def answered(value):
            if value:
                self.say(value)
            else:
                QTimer.singleShot(50, lambda: self.ask(line))

        self._view.page().runJavaScript(f"JSON.stringify({line})", 0, lambda text: answered(json.loads(text or "null")))

    def say(self, value):
        print(json.dumps(value), flush=True)
        QTimer.singleShot(0, self.go_on)


if __name__ == "__main__":
    application = QApplication(sys.argv[:1])
    window = QWebEngineView()
    page = Page(window)
    window.setPage(page)
    window.resize(1180, 1040)
    window.show()
    steps = Steps(window)  # kept: a signal does not keep whose method it calls
    window.loadFinished.connect(steps.go_on)
    window.load(QUrl(sys.argv[1]))
    sys.exit(application.exec())
