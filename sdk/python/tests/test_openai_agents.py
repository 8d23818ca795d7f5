"""Sessions of the OpenAI Agents SDK in a mount, beside the package's own ``SQLiteSession``."""

import asyncio
import random
import unittest
from importlib.util import find_spec

from support import ScratchCase, needs_mounts

from ctxbench import Mount


@needs_mounts
@unittest.skipIf(find_spec("agents") is None, "openai-agents is not installed")
class OpenaiAgentsTest(ScratchCase):
    def setUp(self) -> None:
        super().setUp()
        mount = Mount("sqlite", self.scratch / "store.db", self.directory("mnt"))
        mount.__enter__()
        self.addCleanup(mount.__exit__)
        self.path = mount.path

    def test_any_sequence_of_operations_answers_as_the_packages_session(self) -> None:
        from agents import Session, SessionSettings, SQLiteSession

        from ctxbench.openai_agents import MountSession

        async def compare(seed: int) -> int:
            choose = random.Random(seed)
            settings = SessionSettings(limit=choose.choice([None, 2]))
            names = ["kim", "../kim", "", "Ü/%2F"]
            theirs = {name: SQLiteSession(name, self.scratch / "s.db", session_settings=settings) for name in names}
            ours = {name: MountSession(name, self.path, session_settings=settings) for name in names}
            items = 0
            for step in range(80):
                name = choose.choice(names)
                kind = choose.choice(["add", "add", "get", "get", "pop", "clear" if choose.random() < 0.2 else "add"])
                limit = choose.choice([None, -1, 0, 1, 3, 100])
                added = [
                    {
                        "role": choose.choice(["user", "assistant"]),
                        "content": choose.choice(["", "two\nlines", "Ü🍵\u2028"]),
                    }
                    for _ in range(choose.randint(0, 3))
                ]
                answers = []
                for session in (theirs[name], ours[name]):
                    call = {
                        "add": lambda: session.add_items(added),
                        "get": lambda: session.get_items(limit),
                        "pop": session.pop_item,
                        "clear": session.clear_session,
                    }[kind]
                    answers.append(await call())
                self.assertEqual(answers[1], answers[0], f"step {step} of seed {seed}: {kind} {name!r} {limit}")
                items += len(answers[1] or []) if kind == "get" else 0
            for name in names:
                self.assertIsInstance(ours[name], Session)
                again = MountSession(name, self.path)
                self.assertEqual(await again.get_items(), await theirs[name].get_items(-1))
                theirs[name].close()
                await again.clear_session()
            return items

        for seed in range(3):
            (self.scratch / "s.db").unlink(missing_ok=True)
            self.assertGreater(asyncio.run(compare(seed)), 10)

    def test_a_half_written_item_is_left_out_and_a_damaged_one_is_an_error(self) -> None:
        from ctxbench.openai_agents import MountSession

        async def check() -> None:
            session, file = MountSession("kim", self.path), self.path / "kim.jsonl"
            one, two = {"role": "user", "content": "one"}, {"role": "user", "content": "two"}
            await session.add_items([one])
            with open(file, "a") as half:
                half.write('{"role": "us')
            self.assertEqual(await session.get_items(), [one])
            await session.add_items([two])
            self.assertEqual(await session.get_items(), [one, two])
            with self.assertRaises(TypeError):
                await session.add_items([one, {"role": object()}])
            self.assertEqual(await session.get_items(), [one, two])
            file.write_text("damaged\n")
            for call in (session.get_items, session.pop_item):
                with self.assertRaisesRegex(ValueError, "kim.jsonl is not a session: a line is not JSON"):
                    await call()
            self.assertEqual(file.read_text(), "damaged\n")

        asyncio.run(check())

    def test_adds_at_the_same_time_lose_nothing_and_a_cancelled_add_is_complete(self) -> None:
        from ctxbench.openai_agents import MountSession

        async def check() -> None:
            sessions = [MountSession("kim", self.path) for _ in range(8)]
            items = [{"role": "user", "content": str(number)} for number in range(40)]
            await asyncio.gather(*(sessions[n % 8].add_items([item]) for n, item in enumerate(items)))
            found = await sessions[0].get_items()
            self.assertEqual(sorted(int(item["content"]) for item in found), list(range(40)))
            add = asyncio.ensure_future(sessions[0].add_items(items))
            await asyncio.sleep(0)
            add.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await add
            self.assertIn(len(await sessions[0].get_items()), (40, 80))

        asyncio.run(check())

    def test_a_runner_continues_the_conversation_after_a_new_mount(self) -> None:
        from agents import Agent, RunConfig, Runner

        from ctxbench.openai_agents import MountSession

        model = parrot()
        agent, config = Agent(name="parrot", model=model), RunConfig(tracing_disabled=True)
        store, path = self.scratch / "sessions.db", self.directory("sessions")
        for question in ("My name is Kim.", "Who am I?"):
            with Mount("sqlite", store, path) as mount:
                Runner.run_sync(agent, question, session=MountSession("kim", mount), run_config=config)
        said = [item["content"] for item in model.asked[1]]
        self.assertEqual((said[0], said[1][0]["text"], said[2]), ("My name is Kim.", "answer 1", "Who am I?"))

    def test_the_example_of_the_readme_runs(self) -> None:
        from agents import Agent, Runner, set_tracing_disabled

        set_tracing_disabled(True)
        self.directory("sessions")
        agent = Agent(name="parrot", model=parrot())
        for number in (1, 2):
            said = self.run_example("ctxbench.openai_agents", Mount=Mount, Runner=Runner, agent=agent)
            self.assertEqual(said, f"answer {number}\n")
        self.assertEqual([item["content"] for item in agent.model.asked[1]][::2], ["Hello", "Hello"])


def parrot():
    """A model without a network, which keeps what it was asked."""
    from agents import Model, ModelResponse, Usage
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    class Parrot(Model):
        def __init__(self) -> None:
            self.asked: list = []

        async def get_response(self, *arguments, **named):
            self.asked.append(named["input"] if "input" in named else arguments[1])
            text = ResponseOutputText(text=f"answer {len(self.asked)}", type="output_text", annotations=[])
            message = ResponseOutputMessage(
                id="m", content=[text], role="assistant", status="completed", type="message"
            )
            return ModelResponse(output=[message], usage=Usage(), response_id=None)

        def stream_response(self, *arguments, **named):
            raise NotImplementedError

    return Parrot()


if __name__ == "__main__":
    unittest.main()
