"""The dashboard's files as browsers get them."""

from __future__ import annotations

import gzip

from aiohttp.test_utils import make_mocked_request

from firesteel_dispatcher.dashboard import SECURITY, read_files


def test_every_file_of_the_page_is_there() -> None:
    files = read_files()
    page = files["/"].body.decode()
    for path in ("/dashboard/app.js", "/dashboard/app.css", "/dashboard/icon.svg", "/dashboard/licences.txt"):
        assert path in files
    assert 'src="dashboard/app.js"' in page
    assert not [path for path in files if path.endswith(".json")], "the record of the build is for the tests"


def test_the_policy_lets_nothing_run_but_our_files() -> None:
    policy = dict(part.split(" ", 1) for part in SECURITY["Content-Security-Policy"].split("; "))
    assert policy.pop("default-src") == "'none'"
    assert policy.pop("require-trusted-types-for") == "'script'"
    assert set(policy.values()) <= {"'self'", "'none'"}
    page = read_files()["/"].body.decode()
    assert "style=" not in page
    assert "onload" not in page
    assert page.count("<script") == page.count('<script type="module" src=')


def test_a_browser_that_has_a_file_gets_no_body() -> None:
    file = read_files()["/dashboard/app.js"]
    first = file.answer(make_mocked_request("GET", "/dashboard/app.js"))
    assert (first.status, first.body) == (200, file.body)
    known = {"If-None-Match": first.headers["ETag"]}
    again = file.answer(make_mocked_request("GET", "/dashboard/app.js", headers=known))
    assert (again.status, again.body) == (304, None)
    assert again.headers["Content-Security-Policy"] == first.headers["Content-Security-Policy"]


def test_files_travel_compressed() -> None:
    file = read_files()["/dashboard/app.js"]
    answer = file.answer(make_mocked_request("GET", "/", headers={"Accept-Encoding": "gzip, br"}))
    assert answer.headers["Content-Encoding"] == "gzip"
    assert isinstance(answer.body, bytes)
    assert gzip.decompress(answer.body) == file.body
    assert len(answer.body) < len(file.body) / 2
