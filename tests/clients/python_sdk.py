"""The official Python SDK against a gateway: connect, list the tools, create a goal, list the goals, print one line.

    python python_sdk.py legacy|modern http URL TOKEN
    python python_sdk.py legacy|modern stdio COMMAND ARGUMENT...

With MOONGATE_CALLS, an array of {name, arguments}, it makes those calls instead and prints what each returned.
"""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

# A version instead of "auto": a gateway that cannot speak it fails the test instead of falling back.
MODES = {"legacy": "legacy", "modern": "2026-07-28"}


@asynccontextmanager
async def connected(era, kind, target):
    if kind == "stdio":
        command, *arguments = target
        server = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
        async with Client(server, mode=MODES[era]) as client:
            yield client
    else:
        url, token = target
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}) as http:
            async with Client(streamable_http_client(url, http_client=http), mode=MODES[era]) as client:
                yield client


def shown(model, *names):
    data = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {name: data.get(name) for name in names}


def result(reply):
    data = shown(reply, "isError", "content", "structuredContent")
    return data | {"isError": data["isError"] or False}


async def main():
    era, kind, *target = sys.argv[1:]
    async with connected(era, kind, target) as client:
        tools = (await client.list_tools()).tools
        if calls := os.environ.get("MOONGATE_CALLS"):
            results = [await client.call_tool(call["name"], call["arguments"]) for call in json.loads(calls)]
            report = {"results": [result(reply) for reply in results]}
        else:
            created = await client.call_tool("create_goal", {"goal": "Plant a tree"})
            goals = await client.call_tool("list_goals", {})
            report = {"created": result(created), "goals": result(goals)}
    tools = [shown(tool, "name", "description", "inputSchema") for tool in tools]
    print(json.dumps({"tools": tools, **report}))


asyncio.run(main())
