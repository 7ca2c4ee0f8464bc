"""A stand-in for `gh api`: comments of one pull request in a file, two on each page, with GitHub's limit and errors.

FAKE_GH names the file: {"comments": [{"databaseId", "body", "viewerDidAuthor"}], "calls": [...], "refuses": TEXT,
"rival": TEXT}. rival: a comment that another job writes before the first one of this one.
"""

import json
import os
import sys
from pathlib import Path

STATE = Path(os.environ["FAKE_GH"])
MOST = 65_536  # characters of a comment


def main() -> int:
    state = json.loads(STATE.read_text())
    _, flag, method, path, *given = sys.argv[1:]
    assert (sys.argv[1], flag) == ("api", "--method"), sys.argv
    body = json.loads(sys.stdin.read()) if given == ["--input", "-"] else {}
    state["calls"].append([method, path])
    answer = None
    if path == "graphql":
        answer = page(state["comments"], body["variables"])
    elif state.get("refuses"):
        print(state["refuses"], file=sys.stderr)
        STATE.write_text(json.dumps(state))
        return 1
    elif method == "DELETE":
        state["comments"] = [it for it in state["comments"] if it["databaseId"] != int(path.rpartition("/")[2])]
    elif len(body["body"]) > MOST:
        print("gh: Body is too long (maximum is 65536 characters) (HTTP 422)", file=sys.stderr)
        return 1
    elif method == "PATCH":
        (comment,) = [it for it in state["comments"] if it["databaseId"] == int(path.rpartition("/")[2])]
        comment["body"] = body["body"]
        answer = {"id": comment["databaseId"]}
    else:
        for text in filter(None, (state.pop("rival", None), body["body"])):
            number = 1 + max((it["databaseId"] for it in state["comments"]), default=100)
            state["comments"].append({"databaseId": number, "body": text, "viewerDidAuthor": True})
        answer = {"id": number}
    STATE.write_text(json.dumps(state))
    print("" if answer is None else json.dumps(answer))
    return 0


def page(comments: list, variables: dict) -> dict:
    assert variables["owner"] and variables["name"] and variables["number"]
    start = int(variables["after"] or 0)
    nodes, more = comments[start : start + 2], start + 2 < len(comments)
    info = {"hasNextPage": more, "endCursor": str(start + 2) if more else None}
    return {"data": {"repository": {"pullRequest": {"comments": {"nodes": nodes, "pageInfo": info}}}}}


if __name__ == "__main__":
    sys.exit(main())
