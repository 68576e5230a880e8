"""Owns nothing: the folder of shipped context engines, each selected by its folder's name."""
