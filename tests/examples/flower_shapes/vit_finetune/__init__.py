"""vit_finetune"""
