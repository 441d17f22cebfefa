"""Imported by the process that workers are forked from: all that training needs, then the environment as it was."""

from ecgr.simulation import client as client
from ecgr.simulation import evaluation as evaluation
from ecgr.simulation import prepare as prepare
from ecgr.simulation.engines.spawn import restore_environment

restore_environment()
