"""Contract suites for authors of plugins: what is promised of engines, providers, tools, hooks.

Needs pytest beside posthouse. A suite is a class to inherit from::

    from plugins.testing.tools import ToolSuite

    class TestMine(ToolSuite):
        register = staticmethod(my_plugin.register)
        name = "my_tool"
        arguments = {"city": "Ulm"}
"""
