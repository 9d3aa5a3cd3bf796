from _ralph.state.facts import *  # noqa
